/** Every state without figures, for the specs. */
import type { State } from '../states';

export const states: State[] = [
  { type: 'noNotebook' },
  { type: 'noKernel' },
  { type: 'starting' },
  { type: 'restarting' },
  { type: 'dead' },
  { type: 'disconnected' },
  { type: 'notPython', language: 'R' },
  { type: 'asking' },
  { type: 'silent' },
  { type: 'notLoaded' },
  { type: 'loading' },
  { type: 'notInstalled', text: 'No module named jupyter_gpumem' }
];

/** The states in which the panel is, by what the kernel's connection says of it, and the sentence for each. */
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

/** Why there are no figures, or that there are some. Each has its own sentence. */
export type State =
  | { type: 'noNotebook' }
  | { type: 'noKernel' }
  | { type: 'starting' }
  | { type: 'restarting' }
  | { type: 'dead' }
  | { type: 'disconnected' }
  | { type: 'notPython'; language: string }
  | { type: 'asking' }
  | { type: 'silent' }
  | { type: 'notLoaded' }
  | { type: 'loading' }
  | { type: 'notInstalled'; text: string }
  | { type: 'ready' };

/** States in which a kernel can be asked for a lease. */
export const ASKABLE: readonly State['type'][] = [
  'asking',
  'silent',
  'loading',
  'notLoaded',
  'notInstalled',
  'ready'
];

/** What keeps a kernel from being asked, or null. */
export function hindranceOf(
  kernel: Pick<Kernel.IKernelConnection, 'status' | 'connectionStatus'>
): State | null {
  switch (kernel.status) {
    case 'dead':
    case 'terminating':
      return { type: 'dead' };
    case 'restarting':
    case 'autorestarting':
      return { type: 'restarting' };
    case 'starting':
      return { type: 'starting' };
    default:
      return kernel.connectionStatus === 'connected'
        ? null
        : { type: 'disconnected' };
  }
}

/** One sentence for each state that is not `ready`. */
export function sentence(
  state: State,
  trans: TranslationBundle
): string | null {
  switch (state.type) {
    case 'noNotebook':
      return trans.__('Open a notebook or a console to see its memory.');
    case 'noKernel':
      return trans.__('This notebook has no kernel.');
    case 'starting':
      return trans.__('The kernel is starting…');
    case 'restarting':
      return trans.__('The kernel is restarting…');
    case 'dead':
      return trans.__('The kernel has died. Restart it to go on.');
    case 'disconnected':
      return trans.__('Not connected with the kernel; trying again…');
    case 'notPython':
      return trans.__(
        'This is a kernel for %1; GPU memory is shown for Python kernels.',
        state.language
      );
    case 'asking':
      return trans.__('Asking the kernel…');
    case 'silent':
      return trans.__(
        'The kernel is busy and has not answered for 40 s. Figures come when its cell lets it.'
      );
    case 'notLoaded':
      return trans.__('jupyter_gpumem is not loaded in this kernel.');
    case 'loading':
      return trans.__('Loading; this waits for a running cell…');
    case 'notInstalled':
      return trans.__(
        'The kernel could not load jupyter_gpumem. If it is not installed in the kernel’s environment: %pip install jupyter_gpumem'
      );
    default:
      return null;
  }
}

/**
 * The language of a kernel. The server knows what its kernelspec declares, also while the kernel is slow to answer;
 * where that is Python or nothing, the kernel itself has the last word.
 */
export async function languageOf(
  kernel: Kernel.IKernelConnection
): Promise<string> {
  const spec = await kernel.spec.catch(() => undefined);
  const declared = spec?.language.toLowerCase();
  if (declared && declared !== 'python') {
    return declared;
  }
  const info = await kernel.info.catch(() => null);
  return info?.language_info?.name ?? 'python';
}

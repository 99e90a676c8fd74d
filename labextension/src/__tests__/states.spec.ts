import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';
import { ASKABLE, hindranceOf, languageOf, sentence } from '../states';
import { FakeKernel } from './kernels';
import { brackets } from './records';
import { states } from './states';

const trans = nullTranslator.load('jupyter_gpumem');

describe('a state', () => {
  it('has a sentence of its own, each, and none if all is well', () => {
    const said = states.map(state => sentence(state, trans));
    expect(new Set(said).size).toBe(states.length);
    for (const text of said) {
      expect(text).toMatch(/\S/);
    }
    expect(sentence({ type: 'ready' }, trans)).toBeNull();
    for (const state of states) {
      expect(sentence(state, brackets)).toMatch(/^⟦.*⟧$/);
    }
    expect(sentence({ type: 'notPython', language: 'R' }, trans)).toContain(
      'R;'
    );
  });
});

describe('a kernel', () => {
  it.each([
    ['dead', 'connected', 'dead'],
    ['terminating', 'connected', 'dead'],
    ['restarting', 'connecting', 'restarting'],
    ['autorestarting', 'connected', 'restarting'],
    ['starting', 'connected', 'starting'],
    ['unknown', 'connecting', 'disconnected'],
    ['idle', 'disconnected', 'disconnected']
  ] as const)(
    'that is %s and %s cannot be asked',
    (status, connectionStatus, type) => {
      expect(hindranceOf({ status, connectionStatus })?.type).toBe(type);
      expect(ASKABLE).not.toContain(type);
    }
  );

  it.each(['idle', 'busy', 'unknown'] as const)('that is %s can', status => {
    expect(hindranceOf({ status, connectionStatus: 'connected' })).toBeNull();
  });
});

describe('the language', () => {
  it('is what the kernelspec declares, however slow the kernel is', async () => {
    const kernel = new FakeKernel();
    kernel.declared = 'Julia';
    Object.defineProperty(kernel, 'info', { get: () => new Promise(() => {}) });
    expect(await languageOf(kernel.connection)).toBe('julia');
  });

  it('is what the kernel says where the spec says Python or nothing', async () => {
    const kernel = new FakeKernel();
    kernel.language = 'R';
    expect(await languageOf(kernel.connection)).toBe('R');
    kernel.declared = null;
    expect(await languageOf(kernel.connection)).toBe('R');
  });
});

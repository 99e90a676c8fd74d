import { Signal } from '@lumino/signaling';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { KernelLink } from '../comm';
import { GpuMemModel } from '../model';
import type { ISample } from '../protocol';
import type { CurrentKernel } from '../tracker';
import { FakeKernel, LEASE, createMessage, settled } from './kernels';
import { names, run, sample, verdict } from './records';

/** The notebook in front, as the tracker tells of it. */
class Current {
  readonly changed = new Signal<this, void>(this);
  kernelDisplayStatus = 'idle';
  kernel: FakeKernel | null = null;
  isOpen = false;

  get place(): unknown {
    return this.isOpen
      ? {
          kind: 'notebook',
          context: { kernelDisplayStatus: this.kernelDisplayStatus }
        }
      : null;
  }

  async show(kernel: FakeKernel | null): Promise<void> {
    this.isOpen = true;
    this.kernel = kernel;
    this.changed.emit();
    await settled();
  }

  async become(status: string): Promise<void> {
    this.kernel?.become(status);
    this.changed.emit();
    await settled();
  }
}

let current: Current;
let kernel: FakeKernel;
let model: GpuMemModel;

beforeEach(() => {
  vi.useFakeTimers();
  current = new Current();
  kernel = new FakeKernel();
  model = new GpuMemModel(
    current as unknown as CurrentKernel,
    found => new KernelLink(found, createMessage)
  );
});

afterEach(() => {
  model.dispose();
  vi.useRealTimers();
  Object.defineProperty(document, 'hidden', {
    value: false,
    configurable: true
  });
});

/** The panel is visible, and the kernel has granted a lease. */
async function ready(): Promise<void> {
  model.isActive = true;
  await current.show(kernel);
  await kernel.answer(kernel.last('watch'), LEASE);
}

describe('what is said where there are no figures', () => {
  it('no notebook, no kernel, a kernel that starts', async () => {
    expect(model.state.type).toBe('noNotebook');
    await current.show(null);
    expect(model.state.type).toBe('noKernel');
    current.kernelDisplayStatus = 'starting';
    await current.show(null);
    expect(model.state.type).toBe('starting');
  });

  it('another language', async () => {
    kernel.language = 'julia';
    model.isActive = true;
    await current.show(kernel);
    expect(model.state).toEqual({ type: 'notPython', language: 'julia' });
    kernel.connectionStatus = 'connecting';
    await current.become('unknown');
    kernel.connectionStatus = 'connected';
    await current.become('idle');
    expect(model.state).toEqual({ type: 'notPython', language: 'julia' });
    expect(kernel.sent).toEqual([]);
  });

  it.each([
    ['dead', 'dead'],
    ['terminating', 'dead'],
    ['restarting', 'restarting'],
    ['autorestarting', 'restarting'],
    ['starting', 'starting']
  ])('a kernel that is %s', async (status, type) => {
    await ready();
    await current.become(status);
    expect(model.state.type).toBe(type);
  });

  it('a connection that is lost, until it is back', async () => {
    await ready();
    kernel.connectionStatus = 'connecting';
    await current.become('unknown');
    expect(model.state.type).toBe('disconnected');
    kernel.connectionStatus = 'connected';
    await current.become('idle');
    expect(model.state.type).toBe('asking');
    await kernel.answer(kernel.last('watch'), LEASE);
    expect(model.state.type).toBe('ready');
  });

  it('not loaded, and loaded by hand in a cell', async () => {
    model.isActive = true;
    await current.show(kernel);
    kernel.controlReply(kernel.last('watch').id, {});
    await settled();
    expect(model.state.type).toBe('notLoaded');
    await current.become('idle');
    await kernel.answer(kernel.last('watch'), LEASE);
    expect(model.state.type).toBe('ready');
  });

  it('busy for 40 s and not answering', async () => {
    kernel.status = 'busy';
    model.isActive = true;
    await current.show(kernel);
    await vi.advanceTimersByTimeAsync(38_000);
    expect(model.state.type).toBe('asking');
    await vi.advanceTimersByTimeAsync(4_000);
    expect(model.state.type).toBe('silent');
  });

  it('a remote kernel', async () => {
    model.isActive = true;
    await current.show(kernel);
    await kernel.answer(kernel.last('watch'), {
      result: { ...LEASE.result, host: 'gpu7', remote: true }
    });
    expect(model.remoteHost).toBe('gpu7');
  });

  it('unloaded', async () => {
    await ready();
    kernel.push(sample());
    kernel.push({ kind: 'bye' });
    expect(model.state.type).toBe('notLoaded');
    expect(model.sample).toBeNull();
  });
});

describe('loading', () => {
  beforeEach(async () => {
    model.isActive = true;
    await current.show(kernel);
    kernel.controlReply(kernel.last('watch').id, {});
    await settled();
  });

  it('leads to figures', async () => {
    const done = model.load();
    expect(model.state.type).toBe('loading');
    await settled();
    await kernel.answer(kernel.last('watch'), LEASE);
    await done;
    expect(model.state.type).toBe('ready');
  });

  it('that fails says the kernel’s words', async () => {
    kernel.loadReply = { status: 'error', evalue: 'No module named x' };
    await model.load();
    expect(model.state).toEqual({
      type: 'notInstalled',
      text: 'No module named x'
    });
  });
});

describe('the lease', () => {
  it('is only asked while the panel can be seen', async () => {
    await current.show(kernel);
    expect(kernel.count('watch')).toBe(0);
    model.isActive = true;
    await settled();
    expect(kernel.count('watch')).toBe(1);
  });

  it('is renewed in time, and given back when the panel is hidden', async () => {
    await ready();
    await vi.advanceTimersByTimeAsync(11_000);
    expect(kernel.count('watch')).toBe(2);
    await kernel.answer(kernel.last('watch'), LEASE);
    model.isActive = false;
    expect(kernel.count('unwatch')).toBe(1);
    model.options = { interval: 1000, inStatusBar: false };
    const asked = kernel.sent.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(kernel.sent).toHaveLength(asked);
  });

  it('is given back when the browser’s tab is hidden, and taken again', async () => {
    await ready();
    model.options = { interval: 1000, inStatusBar: true };
    Object.defineProperty(document, 'hidden', {
      value: true,
      configurable: true
    });
    await vi.advanceTimersByTimeAsync(2000);
    expect(kernel.count('unwatch')).toBe(1);
    expect(kernel.count('sample')).toBe(0);
    Object.defineProperty(document, 'hidden', {
      value: false,
      configurable: true
    });
    await vi.advanceTimersByTimeAsync(2000);
    expect(kernel.count('watch')).toBe(2);
  });

  it('that comes when the panel is hidden again is given back', async () => {
    model.isActive = true;
    await current.show(kernel);
    model.isActive = false;
    await kernel.answer(kernel.last('watch'), LEASE);
    expect(kernel.count('unwatch')).toBe(1);
  });

  it('is asked anew when the interval changes', async () => {
    await ready();
    model.options = { interval: 200, inStatusBar: true };
    expect(kernel.last('watch').args).toMatchObject({ interval: 200 });
  });

  it('is asked on shell where the control channel is silent', async () => {
    model.isActive = true;
    kernel.comms = { jupyter_gpumem: {} };
    await current.show(kernel);
    await vi.advanceTimersByTimeAsync(5000);
    expect(kernel.last('watch').channel).toBe('shell');
    await kernel.answer(kernel.last('watch'), LEASE);
    expect(model.state.type).toBe('ready');
  });
});

describe('samples', () => {
  it('are told and become history', async () => {
    await ready();
    const seen: ISample[] = [];
    model.sampled.connect((_, one) => seen.push(one));
    kernel.push(sample());
    expect(seen).toHaveLength(1);
    expect(model.sample).toBe(seen[0]);
    expect(model.history.points.get('GPU-a')).toHaveLength(1);
  });

  it('come to a page that was loaded in the middle of a cell', async () => {
    kernel.status = 'busy';
    model.isActive = true;
    await current.show(kernel);
    kernel.push(sample({ running: run({ ended: null }) }));
    expect(model.state.type).toBe('ready');
  });

  it('that are overdue are said to be old, until one comes', async () => {
    await ready();
    kernel.push(sample());
    expect(model.overdue).toBeNull();
    await vi.advanceTimersByTimeAsync(6000);
    expect(model.overdue).toBeGreaterThan(5);
    kernel.push(sample());
    expect(model.overdue).toBeNull();
  });

  it('of another kernel are not shown for this one', async () => {
    await ready();
    kernel.push(sample());
    const other = new FakeKernel('kernel2');
    await current.show(other);
    expect(model.sample).toBeNull();
    kernel.push(sample());
    expect(model.sample).toBeNull();
  });

  it('of a kernel that one comes back to are still in its chart', async () => {
    await ready();
    kernel.push(sample());
    await current.show(new FakeKernel('kernel2'));
    expect(model.history.points.size).toBe(0);
    await current.show(kernel);
    expect(model.history.points.get('GPU-a')).toHaveLength(1);
  });

  it('of the process before a restart are forgotten', async () => {
    await ready();
    kernel.push(sample());
    await current.become('restarting');
    expect(model.sample).toBeNull();
    expect(model.history.points.size).toBe(0);
  });

  it('that fail say so until one comes', async () => {
    await ready();
    kernel.push({ kind: 'fault', text: 'OSError: no more files' });
    expect(model.fault).toBe('OSError: no more files');
    kernel.push(sample());
    expect(model.fault).toBeNull();
  });

  it('are asked one by one for the status bar while the panel is hidden', async () => {
    await current.show(kernel);
    await vi.advanceTimersByTimeAsync(1500);
    expect(kernel.last('sample').channel).toBe('control');
    await kernel.answer(kernel.last('sample'), { result: sample() });
    expect(model.sample).not.toBeNull();
    expect(model.overdue).toBeNull();
    await vi.advanceTimersByTimeAsync(30_000);
    expect(kernel.count('sample')).toBeLessThanOrEqual(4);
    expect(kernel.count('watch')).toBe(0);
  });
});

describe('cells', () => {
  it('that end are told, and make the names old', async () => {
    await ready();
    await kernel.answer(kernel.last('names'), {
      result: { names: names(), parked: [], left_out: 0, took: 3 }
    });
    const ended: unknown[] = [];
    model.cellEnded.connect((_, one) => ended.push(one));
    kernel.status = 'busy';
    kernel.push({ kind: 'cell', run: run() });
    expect(ended).toHaveLength(1);
    expect(model.history.runs).toHaveLength(1);
    expect(model.notebook?.names?.isOld).toBe(true);
    await current.become('idle');
    expect(kernel.count('names')).toBe(2);
  });
});

describe('a verdict', () => {
  it('comes as it is made, and goes when it does not stand any more', async () => {
    await ready();
    kernel.push({ kind: 'verdict', verdict: verdict() });
    expect(model.notebook?.verdict).toEqual(verdict());
    kernel.push({ kind: 'verdict', verdict: null });
    expect(model.notebook?.verdict).toBeNull();
  });

  it('comes with the lease to a page that was not there', async () => {
    model.isActive = true;
    await current.show(kernel);
    const result = { ...LEASE.result, verdict: verdict() };
    await kernel.answer(kernel.last('watch'), { result });
    expect(model.notebook?.verdict?.id).toBe(1);
  });

  it('of a process that has ended is gone, and the next one’s is the first', async () => {
    await ready();
    kernel.push({ kind: 'verdict', verdict: verdict({ id: 5 }) });
    void model.notebook?.dismissVerdict();
    await current.become('restarting');
    expect(model.notebook?.verdict).toBeNull();
    kernel.boot = 'boot2';
    kernel.push({ kind: 'verdict', verdict: verdict({ id: 1 }) });
    expect(model.notebook?.verdict?.id).toBe(1);
  });
});

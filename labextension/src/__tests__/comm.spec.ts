import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { KernelLink, type RequestError } from '../comm';
import type { Message } from '../protocol';
import { FakeKernel, createMessage, settled } from './kernels';
import { names, sample } from './records';

let kernel: FakeKernel;
let link: KernelLink;
let pushed: Message[];

beforeEach(() => {
  vi.useFakeTimers();
  kernel = new FakeKernel();
  link = new KernelLink(kernel.connection, createMessage);
  pushed = [];
  link.pushed.connect((_, message) => pushed.push(message));
});

afterEach(() => {
  link.dispose();
  vi.useRealTimers();
});

const NAMES = { result: { names: names(), parked: [], left_out: 0, took: 3 } };

/** How a promise ended: its value, or the code of its error. */
function outcome<T>(promise: Promise<T>): { value?: T; code?: string } {
  const seen: { value?: T; code?: string } = {};
  promise.then(
    value => (seen.value = value),
    (error: RequestError) => (seen.code = error.code)
  );
  return seen;
}

describe('a request', () => {
  it('goes over the control channel if it needs no tensor, else over shell', () => {
    outcome(link.ask('sample', {}));
    expect(kernel.last('sample').channel).toBe('control');
    outcome(link.ask('names', {}));
    expect(kernel.last('names').channel).toBe('shell');
  });

  it('is answered by its id, once', async () => {
    const first = outcome(link.ask('names', {}));
    const [asked] = kernel.sent;
    const second = outcome(link.ask('names', {}));
    await kernel.answer(asked, NAMES);
    expect(first.value?.took).toBe(3);
    expect(second).toEqual({});
    await kernel.answer(asked, { error: { code: 'fault', text: 'again' } });
    expect(first.value?.took).toBe(3);
    expect(link.waiting).toBe(1);
  });

  it('that is refused says why', async () => {
    const promise = link.ask('names', {});
    const failure = promise.catch((error: RequestError) => error);
    await kernel.answer(kernel.last('names'), {
      error: { code: 'busy', text: 'a cell is running' }
    });
    expect(await failure).toMatchObject({
      code: 'busy',
      message: 'a cell is running'
    });
  });

  it('that is answered with something else is broken', async () => {
    const seen = outcome(link.ask('names', {}));
    await kernel.answer(kernel.last('names'), { result: { names: [] } });
    expect(seen.code).toBe('broken');
  });

  it('over control times out after a few seconds', async () => {
    const seen = outcome(link.ask('sample', {}));
    await vi.advanceTimersByTimeAsync(3000);
    expect(seen).toEqual({});
    await vi.advanceTimersByTimeAsync(2000);
    expect(seen.code).toBe('timeout');
    expect(link.waiting).toBe(0);
  });

  it('over shell waits for the cell, however long, and not for an idle kernel', async () => {
    kernel.status = 'busy';
    const seen = outcome(link.ask('names', {}));
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(seen).toEqual({});
    kernel.status = 'idle';
    await vi.advanceTimersByTimeAsync(25_000);
    expect(seen.code).toBe('timeout');
  });

  it('whose kernel does not know us is told so', async () => {
    const seen = outcome(link.ask('sample', {}));
    kernel.controlReply(kernel.last('sample').id, { status: 'ok', comms: {} });
    await settled();
    expect(seen.code).toBe('notLoaded');
  });

  it.each(['restarting', 'autorestarting', 'dead', 'terminating'])(
    'fails when the kernel is %s',
    async status => {
      const seen = outcome(link.ask('names', {}));
      kernel.become(status);
      await settled();
      expect(seen.code).toBe('gone');
    }
  );

  it('fails when the link is disposed, and none is made afterwards', async () => {
    const seen = outcome(link.ask('names', {}));
    link.dispose();
    await settled();
    expect(seen.code).toBe('gone');
    await expect(link.ask('names', {})).rejects.toMatchObject({ code: 'gone' });
  });

  it('goes over shell from now on, if the kernel has no control channel', () => {
    link.withoutControl();
    outcome(link.ask('sample', {}));
    expect(kernel.last('sample').channel).toBe('shell');
  });

  it('tells its id, by which it can be cancelled', () => {
    let id = '';
    outcome(link.ask('names', {}, started => (id = started)));
    expect(kernel.last('names').id).toBe(id);
  });
});

describe('what is pushed', () => {
  it('is told', () => {
    kernel.push(sample());
    expect(pushed).toEqual([expect.objectContaining({ kind: 'sample' })]);
  });

  it('is dropped if it is of another comm, of another type, or broken', () => {
    const good = { v: 1, boot: 'b', n: 1, kind: 'bye' };
    kernel.iopub(good, 'another');
    kernel.iopub(good, 'jupyter_gpumem', 'comm_open');
    kernel.iopub({ ...good, v: 2 });
    kernel.iopub(null);
    expect(pushed).toEqual([]);
  });

  it('is dropped if it comes from a process that has ended', () => {
    kernel.push(sample());
    kernel.become('restarting');
    kernel.push(sample(), 'boot1');
    expect(pushed).toHaveLength(1);
    kernel.push(sample(), 'boot2');
    expect(pushed).toHaveLength(2);
    kernel.push(sample(), 'boot1');
    expect(pushed).toHaveLength(2);
  });

  it('of another process than before says so', () => {
    let boots = 0;
    link.rebooted.connect(() => (boots += 1));
    kernel.push(sample());
    expect(boots).toBe(0);
    kernel.push(sample(), 'boot2');
    expect(boots).toBe(1);
  });

  it('is counted where it is lost', () => {
    kernel.push(sample());
    kernel.push(sample());
    expect(link.lost).toBe(0);
    kernel.lose(3);
    kernel.push(sample());
    expect(link.lost).toBe(3);
  });

  it('is not counted as lost before this page was there', () => {
    kernel.lose(1000);
    kernel.push(sample());
    expect(link.lost).toBe(0);
  });

  it('reaches nobody after the end', () => {
    link.dispose();
    kernel.push(sample());
    expect(pushed).toEqual([]);
  });

  it('an answer that is late for this page changes nothing', async () => {
    const seen = outcome(link.ask('sample', {}));
    const asked = kernel.last('sample');
    await vi.advanceTimersByTimeAsync(5000);
    expect(seen.code).toBe('timeout');
    await kernel.answer(asked, { result: sample() });
    expect(seen.code).toBe('timeout');
  });
});

describe('load', () => {
  it('runs the magic without a trace in the history', async () => {
    await link.load();
    expect(kernel.executed).toEqual([
      expect.objectContaining({
        code: '%load_ext jupyter_gpumem',
        store_history: false,
        stop_on_error: false
      })
    ]);
  });

  it('fails with the kernel’s words', async () => {
    kernel.loadReply = { status: 'error', evalue: 'No module' };
    await expect(link.load()).rejects.toThrow('No module');
    kernel.loadReply = { status: 'error', evalue: '' };
    kernel.loadPrints = 'The module is not an IPython extension.\n';
    await expect(link.load()).rejects.toThrow('not an IPython extension');
  });

  it('is known by the list of comms where there is no control channel', async () => {
    expect(await link.isLoaded()).toBe(false);
    kernel.comms = { jupyter_gpumem: {} };
    expect(await link.isLoaded()).toBe(true);
  });
});

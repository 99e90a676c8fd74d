import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KernelLink } from '../comm';
import { Notebook } from '../notebook';
import { FakeKernel, createMessage, settled } from './kernels';
import { names, parking, plan, report, verdict } from './records';

let kernel: FakeKernel;
let link: KernelLink;
let notebook: Notebook;

beforeEach(() => {
  kernel = new FakeKernel();
  link = new KernelLink(kernel.connection, createMessage);
  notebook = new Notebook(link);
});

afterEach(() => link.dispose());

const WISH = { names: ['x'], dangling: false, empty: false };
const OFFER = { result: { token: 't1', plan: plan() } };
const listed = (took = 3) => ({
  result: { names: names(), parked: [], left_out: 2, took }
});

describe('names', () => {
  it('are asked once at a time', async () => {
    void notebook.refresh();
    void notebook.refresh();
    expect(kernel.count('names')).toBe(1);
    expect(notebook.isAsking).toBe(true);
    await kernel.answer(kernel.last('names'), listed());
    expect(notebook.isAsking).toBe(false);
    expect(notebook.names).toMatchObject({ leftOut: 2, isOld: false });
  });

  it('that do not come leave the old ones and say why', async () => {
    void notebook.refresh();
    await kernel.answer(kernel.last('names'), listed());
    void notebook.refresh();
    await kernel.answer(kernel.last('names'), {
      error: { code: 'fault', text: 'broken' }
    });
    expect(notebook.names?.names.names).toHaveLength(1);
    expect(notebook.failed).toEqual({ code: 'fault', text: 'broken' });
  });

  it('are old after a cell, and then asked anew while the kernel is idle', async () => {
    void notebook.refresh();
    await kernel.answer(kernel.last('names'), listed());
    void notebook.refreshQuietly();
    expect(kernel.count('names')).toBe(1);
    notebook.age();
    expect(notebook.names?.isOld).toBe(true);
    kernel.status = 'busy';
    void notebook.refreshQuietly();
    expect(kernel.count('names')).toBe(1);
    kernel.status = 'idle';
    void notebook.refreshQuietly();
    expect(kernel.count('names')).toBe(2);
  });

  it('whose search holds up the next cell are only asked on demand', async () => {
    void notebook.refresh();
    await kernel.answer(kernel.last('names'), listed(2000));
    notebook.age();
    void notebook.refreshQuietly();
    expect(kernel.count('names')).toBe(1);
    void notebook.refresh();
    expect(kernel.count('names')).toBe(2);
  });
});

describe('a clean-up', () => {
  const planned = async () => {
    void notebook.plan(WISH);
    await kernel.answer(kernel.last('plan'), OFFER);
  };

  it('is first a plan, then a report, then new names', async () => {
    void notebook.plan(WISH);
    expect(notebook.task).toMatchObject({ step: 'planning' });
    await kernel.answer(kernel.last('plan'), OFFER);
    expect(notebook.task).toMatchObject({ step: 'plan', changed: false });
    expect(kernel.count('free')).toBe(0);
    void notebook.confirm();
    expect(kernel.last('free').args).toEqual({ token: 't1' });
    await kernel.answer(kernel.last('free'), { result: { report: report() } });
    expect(notebook.task).toMatchObject({ step: 'report' });
    expect(kernel.count('names')).toBe(1);
  });

  it('whose plan has changed is shown again', async () => {
    await planned();
    void notebook.confirm();
    await kernel.answer(kernel.last('free'), {
      result: { changed: { token: 't2', plan: plan() } }
    });
    expect(notebook.task).toMatchObject({ step: 'plan', changed: true });
  });

  it('is one at a time', async () => {
    void notebook.plan(WISH);
    void notebook.plan(WISH);
    expect(kernel.count('plan')).toBe(1);
    await kernel.answer(kernel.last('plan'), OFFER);
    void notebook.confirm();
    void notebook.confirm();
    void notebook.plan(WISH);
    expect(kernel.count('free')).toBe(1);
    expect(kernel.count('plan')).toBe(1);
  });

  it('is cancelled while it waits', async () => {
    await planned();
    void notebook.confirm();
    void notebook.dismiss();
    expect(notebook.task).toMatchObject({ cancelling: true });
    expect(kernel.last('cancel').args).toEqual({
      target: kernel.last('free').id
    });
    await kernel.answer(kernel.last('cancel'), { result: { cancelled: true } });
    expect(notebook.task).toBeNull();
    await kernel.answer(kernel.last('free'), {
      error: { code: 'cancelled', text: '' }
    });
    expect(notebook.task).toBeNull();
  });

  it('that has begun is not cancelled, and its report comes', async () => {
    await planned();
    void notebook.confirm();
    void notebook.dismiss();
    await kernel.answer(kernel.last('cancel'), {
      result: { cancelled: false }
    });
    await kernel.answer(kernel.last('free'), { result: { report: report() } });
    expect(notebook.task).toMatchObject({ step: 'report' });
  });

  it('that fails says why, and can be put away', async () => {
    void notebook.plan(WISH);
    await kernel.answer(kernel.last('plan'), {
      error: { code: 'input', text: 'no such name' }
    });
    expect(notebook.task).toEqual({
      step: 'failed',
      code: 'input',
      text: 'no such name'
    });
    await notebook.dismiss();
    expect(notebook.task).toBeNull();
  });

  it('is not confirmed where there is no plan', async () => {
    await notebook.confirm();
    expect(kernel.count('free')).toBe(0);
  });

  it('of a kernel that has ended is not shown for the next', async () => {
    void notebook.plan(WISH);
    notebook.forget();
    await kernel.answer(kernel.last('plan'), OFFER);
    expect(notebook.task).toBeNull();
  });
});

describe('a move', () => {
  const MOVE = { result: { token: 't3', parking: parking() } };
  const done = parking({ done: true });

  it.each(['park', 'restore'] as const)(
    'is first a plan, then done, then new names: %s',
    async direction => {
      void notebook.planMove(direction, ['x']);
      expect(notebook.task).toMatchObject({ step: 'planning' });
      expect(kernel.last(direction).args).toEqual({ names: ['x'] });
      await kernel.answer(kernel.last(direction), MOVE);
      expect(notebook.task).toMatchObject({ step: 'move', changed: false });
      expect(kernel.count('move')).toBe(0);
      void notebook.confirm();
      expect(notebook.task).toMatchObject({ step: 'moving' });
      expect(kernel.last('move').args).toEqual({ token: 't3' });
      await kernel.answer(kernel.last('move'), { result: { done } });
      expect(notebook.task).toEqual({ step: 'moved', parking: done });
      expect(kernel.count('names')).toBe(1);
      expect(kernel.count('free')).toBe(0);
    }
  );

  it('whose plan has changed is shown again', async () => {
    void notebook.planMove('park', ['x']);
    await kernel.answer(kernel.last('park'), MOVE);
    void notebook.confirm();
    await kernel.answer(kernel.last('move'), {
      result: { changed: { token: 't4', parking: parking() } }
    });
    expect(notebook.task).toMatchObject({ step: 'move', changed: true });
  });

  it('is one task at a time, and can be cancelled while it waits', async () => {
    void notebook.planMove('park', ['x']);
    void notebook.planMove('restore', ['x']);
    void notebook.plan(WISH);
    expect(kernel.count('restore') + kernel.count('plan')).toBe(0);
    await kernel.answer(kernel.last('park'), MOVE);
    void notebook.confirm();
    void notebook.dismiss();
    expect(kernel.last('cancel').args).toEqual({
      target: kernel.last('move').id
    });
    await kernel.answer(kernel.last('cancel'), { result: { cancelled: true } });
    expect(notebook.task).toBeNull();
  });

  it('that is refused says why', async () => {
    void notebook.planMove('park', ['x']);
    const error = { code: 'input', text: 'x: nothing of it is on cuda:0' };
    await kernel.answer(kernel.last('park'), { error });
    expect(notebook.task).toEqual({ step: 'failed', ...error });
  });
});

describe('an account', () => {
  it('is asked, answered and put away', async () => {
    void notebook.askAccount();
    expect(notebook.account).toEqual({ accounts: null, failed: null });
    await kernel.answer(kernel.last('account'), { result: { accounts: [] } });
    expect(notebook.account).toEqual({ accounts: [], failed: null });
    notebook.closeAccount();
    expect(notebook.account).toBeNull();
  });

  it('that is put away does not come back, and one that fails says so', async () => {
    void notebook.askAccount();
    notebook.closeAccount();
    await kernel.answer(kernel.last('account'), { result: { accounts: [] } });
    expect(notebook.account).toBeNull();
    void notebook.askAccount();
    kernel.become('dead');
    await settled();
    expect(notebook.account?.failed?.code).toBe('gone');
  });
});

describe('a verdict', () => {
  it('is put away here at once, and at the kernel', async () => {
    notebook.judge(verdict({ id: 2 }));
    void notebook.dismissVerdict();
    expect(notebook.verdict).toBeNull();
    expect(kernel.last('dismiss').args).toEqual({ verdict: 2 });
    notebook.judge(verdict({ id: 2 })); // was on its way
    expect(notebook.verdict).toBeNull();
    notebook.judge(verdict({ id: 3 }));
    expect(notebook.verdict?.id).toBe(3);
  });

  it('is dismissed once, and stays away if the kernel cannot be told', async () => {
    notebook.judge(verdict());
    void notebook.dismissVerdict();
    void notebook.dismissVerdict();
    expect(kernel.count('dismiss')).toBe(1);
    kernel.become('dead');
    await settled();
    expect(notebook.verdict).toBeNull();
  });

  it('is told once', () => {
    let told = 0;
    notebook.changed.connect(() => (told += 1));
    notebook.judge(verdict());
    notebook.judge(verdict());
    expect(told).toBe(1);
  });
});

describe('why', () => {
  it('is asked and answered', async () => {
    void notebook.askWhy('x', { name: 'x' });
    expect(notebook.why).toMatchObject({ title: 'x', holders: null });
    await kernel.answer(kernel.last('why'), {
      result: {
        name: 'x',
        nbytes: 4,
        holders: [],
        notes: ['n'],
        cuts: ['x', 'y']
      }
    });
    expect(notebook.why).toMatchObject({
      holders: [],
      notes: ['n'],
      cuts: ['x', 'y']
    });
  });

  it('shows the answer to the last question only', async () => {
    void notebook.askWhy('x', { name: 'x' });
    const first = kernel.last('why');
    void notebook.askWhy('y', { name: 'y' });
    await kernel.answer(first, {
      result: { name: 'x', nbytes: 4, holders: [], notes: [], cuts: [] }
    });
    expect(notebook.why).toMatchObject({ title: 'y', holders: null });
  });

  it('that is closed does not come back', async () => {
    void notebook.askWhy('x', { name: 'x' });
    notebook.closeWhy();
    await kernel.answer(kernel.last('why'), {
      result: { name: 'x', nbytes: 4, holders: [], notes: [], cuts: [] }
    });
    expect(notebook.why).toBeNull();
  });

  it('that fails says so', async () => {
    void notebook.askWhy('x', { name: 'x' });
    kernel.become('dead');
    await settled();
    expect(notebook.why?.failed?.code).toBe('gone');
  });
});

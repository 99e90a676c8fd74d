import { nullTranslator } from '@jupyterlab/translation';
import {
  cleanup,
  fireEvent,
  render,
  screen,
  within
} from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { failure, promised, TaskCard } from '../cleanup';
import type { Task } from '../notebook';
import type { IPlan } from '../protocol';
import {
  action,
  allocator,
  brackets,
  GIB,
  held,
  HOSTILE,
  MIB,
  plan,
  report
} from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

function card(task: Task, over: { isBusy?: boolean; language?: typeof trans }) {
  const deeds = { onConfirm: vi.fn(), onDismiss: vi.fn() };
  const element = (
    <TaskCard
      task={task}
      isBusy={over.isBusy ?? false}
      trans={over.language ?? trans}
      {...deeds}
    />
  );
  return { deeds, element };
}

function show(task: Task, over: Parameters<typeof card>[1] = {}) {
  const { deeds, element } = card(task, over);
  return { ...deeds, ...render(element) };
}

const offered = (over: Partial<IPlan> = {}, changed = false): Task => ({
  step: 'plan',
  offer: { token: 't1', plan: plan(over) },
  changed
});
const under = (step: 'planning' | 'freeing', cancelling = false): Task => ({
  step,
  id: 'r1',
  cancelling
});
const button = (name: string) =>
  screen.getByRole<HTMLButtonElement>('button', { name });
const items = () =>
  screen.getAllByRole('listitem').map(item => item.textContent);

describe('a plan', () => {
  it('says each step with its bytes, and the button all of them', () => {
    const { onConfirm, onDismiss } = show(
      offered({
        actions: [
          action({ target: 'model', nbytes: 3 * MIB }),
          action({
            step: 'move to host',
            target: 'cache',
            nbytes: MIB,
            note: 'it holds other values too and stays'
          }),
          action({
            step: 'collect cycles',
            target: 'unreachable objects',
            nbytes: 2 * MIB
          }),
          action({ step: 'clear cache', target: 'autocast', nbytes: null }),
          action({ step: 'empty cache', target: 'cuda:0', nbytes: GIB })
        ]
      })
    );
    expect(items()).toEqual([
      'delete model3.0 MiB',
      'move to host memory cache1.0 MiBit holds other values too and stays',
      'collect cycles 2.0 MiB',
      'clear cache autocast?',
      'empty the cache of cuda:01.0 GiB'
    ]);
    fireEvent.click(button('Free 6.0 MiB'));
    expect(onConfirm).toHaveBeenCalledTimes(1);
    expect(onDismiss).not.toHaveBeenCalled();
    fireEvent.click(button('Cancel'));
    expect(onDismiss).toHaveBeenCalledTimes(1);
    expect(onConfirm).toHaveBeenCalledTimes(1);
  });

  it('promises what goes to the driver only if it gives nothing else back', () => {
    const empty = action({ step: 'empty cache', nbytes: GIB });
    expect(promised(plan({ actions: [empty] }))).toBe(GIB);
    expect(promised(plan({ actions: [empty, action()] }))).toBe(3 * MIB);
    expect(promised(plan({ actions: [] }))).toBeNull();
  });

  it('says what stays, and its notes', () => {
    show(
      offered({
        held: [held('module', 'lib.weights', { nbytes: MIB })],
        notes: ['autocast was entered and not left']
      })
    );
    expect(screen.getByText('This stays:')).toBeTruthy();
    expect(items()).toContain('lib.weights1.0 MiB');
    expect(screen.getByText('autocast was entered and not left')).toBeTruthy();
  });

  it('that would do nothing cannot be confirmed', () => {
    show(offered({ actions: [] }));
    expect(screen.getByText('There is nothing to free.')).toBeTruthy();
    expect(button('Free').disabled).toBe(true);
    expect(screen.queryByText('This stays:')).toBeNull();
  });

  it('warns if it is another than the one that was confirmed', () => {
    show(offered({}, true));
    expect(screen.getByRole('alert').textContent).toMatch(
      /^The notebook has changed meanwhile\. Nothing was done/
    );
    expect(button('Free 3.0 MiB').disabled).toBe(false);
    cleanup();
    show(offered());
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('shows a step that it does not know under the kernel’s word', () => {
    show(offered({ actions: [action({ step: 'a new step' })] }));
    expect(items()).toEqual(['a new step model3.0 MiB']);
  });
});

describe('a clean-up under way', () => {
  it.each([
    [under('planning'), false, 'Planning…'],
    [under('freeing'), false, 'Freeing…'],
    [under('planning'), true, 'Waiting for the running cell to end…'],
    [under('freeing'), true, 'Waiting for the running cell to end…'],
    [under('freeing', true), false, 'Cancelling…'],
    [under('planning', true), true, 'Cancelling…']
  ])('%j, busy %s: %s', (task, isBusy, words) => {
    const { onDismiss } = show(task, { isBusy });
    expect(screen.getByRole('status').textContent).toBe(words);
    fireEvent.click(button('Cancel'));
    expect(onDismiss).toHaveBeenCalledTimes(1);
    expect(screen.getAllByRole('button')).toHaveLength(1);
  });
});

describe('a report', () => {
  const done = (over: Parameters<typeof report>[0] = {}): Task => ({
    step: 'report',
    report: report(over)
  });

  it('says what was freed, and how each pool has changed', () => {
    const { onDismiss } = show(
      done({
        freed: 3 * MIB,
        before: [
          allocator({ allocated: GIB, reserved: 2 * GIB }),
          allocator({ device: 'cuda:1', allocated: MIB, reserved: MIB }),
          allocator({ device: 'cpu', allocated: 0, reserved: null })
        ],
        after: [
          allocator({ allocated: GIB - 3 * MIB, reserved: GIB }),
          allocator({ device: 'cuda:1', allocated: MIB, reserved: MIB }),
          allocator({ device: 'cpu', allocated: 3 * MIB, reserved: null })
        ]
      })
    );
    expect(screen.getByRole('status').textContent).toBe('3.0 MiB freed.');
    expect(items()).toEqual([
      'cuda:0allocated -3.0 MiBreserved from the driver -1.0 GiB',
      'cuda:1allocated 0 Breserved from the driver 0 B',
      'cpuallocated +3.0 MiB'
    ]);
    fireEvent.click(button('Close'));
    expect(onDismiss).toHaveBeenCalledTimes(1);
  });

  it('compares a pool with itself, not with another framework’s', () => {
    show(
      done({
        before: [
          allocator({ framework: 'other', allocated: 9 * GIB, reserved: null }),
          allocator({ allocated: 2 * GIB, reserved: null })
        ],
        after: [allocator({ allocated: GIB, reserved: null })]
      })
    );
    expect(items()).toEqual(['cuda:0allocated -1.0 GiB']);
  });

  it('says what is still held, ten of it, and what went wrong', () => {
    show(
      done({
        left: Array.from({ length: 12 }, (_, storage) =>
          held('module', `lib.${storage}`, { storage })
        ),
        faults: ['RuntimeError: a hook failed']
      })
    );
    expect(screen.getByText('Still held:')).toBeTruthy();
    expect(items()).toHaveLength(11);
    expect(items()[0]).toBe('lib.04.0 MiB');
    expect(items()[10]).toBe('…');
    expect(screen.getByRole('alert').textContent).toBe(
      'RuntimeError: a hook failed'
    );
    cleanup();
    show(done());
    expect(screen.queryByText('Still held:')).toBeNull();
    expect(screen.queryByRole('alert')).toBeNull();
  });
});

describe('a failure', () => {
  const codes = [
    ['timeout', 'The kernel did not answer.'],
    ['gone', 'The kernel has ended or was restarted.'],
    ['busy', 'A cell is running; try again when it has ended.'],
    [
      'broken',
      'The kernel’s answer cannot be read: update jupyter_gpumem in the kernel or in JupyterLab.'
    ],
    ['input', 'what the kernel says'],
    ['fault', 'what the kernel says'],
    ['notLoaded', 'what the kernel says']
  ] as const;

  it.each(codes)('of kind %s says why nothing was done', (code, words) => {
    const { onDismiss } = show({
      step: 'failed',
      code,
      text: 'what the kernel says'
    });
    const region = screen.getByRole('region', { name: 'Nothing was done' });
    expect(within(region).getByRole('alert').textContent).toBe(words);
    fireEvent.click(button('Close'));
    expect(onDismiss).toHaveBeenCalledTimes(1);
  });

  it('has its sentence translated', () => {
    for (const [code, words] of codes) {
      expect(failure(code, 'what the kernel says', brackets)).toBe(
        `⟦${words}⟧`
      );
    }
  });
});

describe('the focus', () => {
  it('goes to the heading at each step, and stays where it is within one', () => {
    const follows = (name: string) =>
      expect(document.activeElement).toBe(
        screen.getByRole('heading', { name })
      );
    const { rerender } = show(under('planning'));
    const step = (task: Task, isBusy = false) =>
      rerender(card(task, { isBusy }).element);
    follows('Clean-up');
    step(offered());
    follows('Plan');

    button('Cancel').focus();
    step(offered(), true);
    expect(document.activeElement).toBe(button('Cancel'));

    step(under('freeing'));
    follows('Clean-up');
    step({
      step: 'plan',
      offer: { token: 't2', plan: plan() },
      changed: true
    });
    follows('Plan');
    step({ step: 'report', report: report() });
    follows('Done');
    step({ step: 'failed', code: 'gone', text: '' });
    follows('Nothing was done');
  });

  it('goes to the heading if another plan takes the place of one', () => {
    const { rerender } = show(offered());
    button('Cancel').focus();
    rerender(
      card(
        { step: 'plan', offer: { token: 't2', plan: plan() }, changed: true },
        {}
      ).element
    );
    expect(document.activeElement).toBe(
      screen.getByRole('heading', { name: 'Plan' })
    );
  });
});

describe('texts', () => {
  it.each(HOSTILE)('number %# of the hostile ones is only text', name => {
    const { container } = show(
      offered({
        actions: [action({ target: name, note: name })],
        held: [held('module', name)],
        notes: [name]
      })
    );
    expect(screen.getAllByText(name)).toHaveLength(4);
    expect(container.querySelector('img, script')).toBeNull();
  });

  it('are translated, the kernel’s notes too', () => {
    show(offered({ actions: [action({ note: 'a note' })] }, true), {
      language: brackets
    });
    expect(items()).toEqual(['⟦delete⟧ model3.0 MiB⟦a note⟧']);
    expect(button('⟦Free 3.0 MiB⟧')).toBeTruthy();
    expect(screen.getByRole('region', { name: '⟦Plan⟧' })).toBeTruthy();
    expect(screen.getByRole('alert').textContent).toMatch(/^⟦/);
  });
});

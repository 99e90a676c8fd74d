import { nullTranslator } from '@jupyterlab/translation';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { TaskCard } from '../cleanup';
import { canPark, ParkedNames } from '../moving';
import type { Task } from '../notebook';
import type { IParkedName, IParking } from '../protocol';
import { allocator, brackets, GIB, HOSTILE, MIB, parking } from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

function show(task: Task, language = trans) {
  const deeds = { onConfirm: vi.fn(), onDismiss: vi.fn() };
  const element = (
    <TaskCard task={task} isBusy={false} trans={language} {...deeds} />
  );
  return { ...deeds, ...render(element) };
}

const offered = (over: Partial<IParking> = {}, changed = false): Task => ({
  step: 'move',
  offer: { token: 't3', parking: parking(over) },
  changed
});
const button = (name: string) =>
  screen.getByRole<HTMLButtonElement>('button', { name });
const items = () =>
  screen.queryAllByRole('listitem').map(item => item.textContent);

describe('a plan for a move', () => {
  it('says what goes where, and is done only when it is confirmed', () => {
    const { onConfirm, onDismiss } = show(offered({ notes: ['a note'] }));
    expect(items()).toEqual(['model3.0 MiBfrom cuda:0 to host memory']);
    expect(screen.getByText('a note')).toBeTruthy();
    expect(document.activeElement).toBe(
      screen.getByRole('heading', { name: 'Plan' })
    );
    fireEvent.click(button('Move 3.0 MiB to host memory'));
    expect(onConfirm).toHaveBeenCalledTimes(1);
    fireEvent.click(button('Cancel'));
    expect(onDismiss).toHaveBeenCalledTimes(1);
  });

  it('goes the other way too', () => {
    show(offered({ direction: 'restore' }));
    expect(items()).toEqual(['model3.0 MiBfrom host memory to cuda:0']);
    expect(button('Bring 3.0 MiB back').disabled).toBe(false);
  });

  it('that cannot be done says why, and has no way on', () => {
    show(offered({ obstacles: ['cuda:0 has 1.0 MiB free'] }));
    expect(screen.getByRole('alert').textContent).toBe(
      'It cannot be moved:cuda:0 has 1.0 MiB free'
    );
    expect(button('Move 3.0 MiB to host memory').disabled).toBe(true);
  });

  it('that would do nothing cannot be confirmed', () => {
    show(offered({ moved: [] }));
    expect(screen.getByText('There is nothing to move.')).toBeTruthy();
    expect(button('Move 0 B to host memory').disabled).toBe(true);
  });

  it('warns if it is another than the one that was confirmed', () => {
    show(offered({}, true));
    expect(screen.getByRole('alert').textContent).toMatch(
      /^The notebook has changed meanwhile/
    );
  });

  it.each(HOSTILE)('shows number %# of the hostile names as text', name => {
    const [one] = parking().moved;
    const { container } = show(
      offered({ moved: [{ ...one, name }], obstacles: [name], notes: [name] })
    );
    expect(screen.getAllByText(name)).toHaveLength(3);
    expect(container.querySelector('img, script')).toBeNull();
  });
});

describe('a move', () => {
  it('under way can be cancelled', () => {
    const { onDismiss } = show({ step: 'moving', id: 'r1', cancelling: false });
    expect(screen.getByRole('status').textContent).toBe('Moving…');
    fireEvent.click(button('Cancel'));
    expect(onDismiss).toHaveBeenCalledTimes(1);
  });

  it('that was made says what the device has gained', () => {
    const before = [allocator({ allocated: GIB, reserved: 2 * GIB })];
    const after = [allocator({ allocated: 0, reserved: GIB })];
    const done = { done: true, before, after, notes: ['a note'] };
    const { onDismiss } = show({ step: 'moved', parking: parking(done) });
    expect(screen.getByRole('status').textContent).toBe(
      '3.0 MiB moved to host memory.'
    );
    expect(items()).toEqual([
      'cuda:0allocated -1.0 GiBreserved from the driver -1.0 GiB'
    ]);
    expect(screen.getByText('a note')).toBeTruthy();
    fireEvent.click(button('Close'));
    expect(onDismiss).toHaveBeenCalledTimes(1);
    cleanup();
    show({ step: 'moved', parking: parking({ direction: 'restore' }) });
    expect(screen.getByRole('status').textContent).toBe(
      '3.0 MiB brought back.'
    );
  });

  it('is translated', () => {
    show(offered(), brackets);
    expect(items()).toEqual(['model3.0 MiB⟦from cuda:0 to host memory⟧']);
    expect(button('⟦Move 3.0 MiB to host memory⟧')).toBeTruthy();
  });
});

describe('what lies in host memory', () => {
  const list = (parked: IParkedName[], hasTask = false, language = trans) => {
    const onMove = vi.fn();
    const { container } = render(
      <ParkedNames
        parked={parked}
        hasTask={hasTask}
        onMove={onMove}
        trans={language}
      />
    );
    return { container, onMove };
  };
  const model = { name: 'model', device: 'cuda:0', nbytes: 3 * MIB };
  const other = { name: 'other', device: 'cuda:1', nbytes: MIB };

  it('is nothing at all where nothing is parked', () => {
    expect(list([]).container.childElementCount).toBe(0);
  });

  it('has its bytes, its device and the way back', () => {
    const { onMove } = list([model]);
    expect(
      screen.getByRole('heading', { name: 'In host memory 3.0 MiB' })
    ).toBeTruthy();
    expect(items()).toEqual(['model3.0 MiBbelongs to cuda:0Bring back']);
    fireEvent.click(button('Bring model back'));
    expect(onMove).toHaveBeenCalledExactlyOnceWith('restore', ['model']);
    expect(screen.queryByRole('button', { name: 'Bring all back' })).toBeNull();
  });

  it('can come back as a whole, each name once', () => {
    const { onMove } = list([model, { ...model, device: 'cuda:1' }, other]);
    fireEvent.click(button('Bring all back'));
    expect(onMove).toHaveBeenCalledExactlyOnceWith('restore', [
      'model',
      'other'
    ]);
  });

  it('stays while another task is under way', () => {
    list([model, other], true);
    for (const one of screen.getAllByRole<HTMLButtonElement>('button')) {
      expect(one.disabled).toBe(true);
    }
  });

  it('is translated, and hostile names are text', () => {
    const { container } = list(
      HOSTILE.map(name => ({ ...model, name })),
      false,
      brackets
    );
    expect(
      screen.getByRole('region', { name: '⟦In host memory⟧' })
    ).toBeTruthy();
    expect(screen.getByTitle(HOSTILE[0]).textContent).toBe(HOSTILE[0]);
    expect(container.querySelector('img, script')).toBeNull();
  });
});

describe('what can go to the host', () => {
  it('is what lies on an accelerator', () => {
    expect(canPark(['cuda:0'])).toBe(true);
    expect(canPark(['cpu', 'mps:0'])).toBe(true);
    expect(canPark(['cpu'])).toBe(false);
    expect(canPark([])).toBe(false);
  });
});

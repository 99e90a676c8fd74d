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
import { type ITensorsProps, Tensors } from '../tensors';
import {
  allocator,
  brackets,
  GIB,
  HOSTILE,
  held,
  KIB,
  many,
  MIB,
  nameUse,
  namesView,
  plan
} from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

function show(over: Partial<ITensorsProps> = {}) {
  const props: ITensorsProps = {
    view: namesView(),
    isAsking: false,
    isBusy: false,
    failed: null,
    task: null,
    why: null,
    account: null,
    onRefresh: vi.fn(),
    onPlan: vi.fn(),
    onConfirm: vi.fn(),
    onDismiss: vi.fn(),
    onWhy: vi.fn(),
    onCloseWhy: vi.fn(),
    onMove: vi.fn(),
    onAccount: vi.fn(),
    onCloseAccount: vi.fn(),
    trans,
    ...over
  };
  const { container } = render(<Tensors {...props} />);
  return { props, container };
}

const some = [
  nameUse({ name: 'small', nbytes: KIB, kind: 'Tensor', dtype: 'float16' }),
  nameUse({ name: 'large', nbytes: GIB, kind: 'Linear', devices: ['cuda:1'] }),
  nameUse({ name: 'Mid', nbytes: MIB, kind: 'Adam', dtype: 'float32' })
];

const table = () => screen.getByRole('listbox');
/** Those of the table, not of the box that says by what it is sorted. */
const rows = () => within(table()).getAllByRole('option');
const named = () =>
  rows().map(row => row.querySelector('.jp-gpumem-nameText')?.textContent);
const current = () => {
  const [selected, ...others] = within(table()).getAllByRole('option', {
    selected: true
  });
  expect(others).toEqual([]);
  expect(table().getAttribute('aria-activedescendant')).toBe(selected.id);
  return selected.querySelector('.jp-gpumem-nameText')?.textContent;
};
const button = (name: string) =>
  screen.getByRole<HTMLButtonElement>('button', { name });
const press = (key: string) => fireEvent.keyDown(table(), { key });

describe('the names', () => {
  it('come largest first, with all that is known of them', () => {
    show({ view: namesView({ names: some }) });
    expect(named()).toEqual(['large', 'Mid', 'small']);
    expect(rows()[0].textContent).toContain('1.0 GiB');
    expect(rows()[0].textContent).toContain('Linear · cuda:1');
    expect(rows()[2].textContent).toContain('Tensor · float16 · cuda:0');
    expect(
      screen.getByRole('heading', { name: 'Names 1.0 GiB in 3' })
    ).toBeTruthy();
  });

  it('can be sorted by another column, and the other way round', () => {
    show({ view: namesView({ names: some }) });
    fireEvent.change(screen.getByRole('combobox', { name: 'Sort by' }), {
      target: { value: 'kind' }
    });
    expect(named()).toEqual(['small', 'large', 'Mid']);
    fireEvent.click(button('Descending'));
    expect(named()).toEqual(['Mid', 'large', 'small']);
    expect(button('Ascending')).toBeTruthy();
  });

  it('can be filtered by several words', () => {
    show({ view: namesView({ names: some }) });
    const box = screen.getByRole('searchbox', { name: 'Filter names' });
    fireEvent.change(box, { target: { value: 'FLOAT cuda:0' } });
    expect(named()).toEqual(['Mid', 'small']);
    fireEvent.change(box, { target: { value: 'adam float32' } });
    expect(named()).toEqual(['Mid']);
    fireEvent.change(box, { target: { value: 'adam float16' } });
    expect(screen.queryByRole('listbox')).toBeNull();
    expect(screen.getByText('No name matches the filter.')).toBeTruthy();
    fireEvent.change(box, { target: { value: '' } });
    expect(rows()).toHaveLength(3);
  });

  it('say which devices were searched if there are none', () => {
    show({ view: namesView({ names: [], watched: ['cuda:0', 'cuda:1'] }) });
    expect(
      screen.getByText('No name holds memory of cuda:0, cuda:1.')
    ).toBeTruthy();
    expect(screen.queryByRole('searchbox')).toBeNull();
  });

  it('that are in sight exist, be there ten thousand', () => {
    show({ view: namesView({ names: many(10_000) }) });
    expect(rows().length).toBeLessThan(40);
    expect(named()[0]).toBe('x0');
    expect(rows()[0].getAttribute('aria-setsize')).toBe('10000');

    table().scrollTop = 40 * 5000;
    fireEvent.scroll(table());
    expect(rows().length).toBeLessThan(40);
    expect(named()).toContain('x5000');
    expect(named()).toContain('x5007');
    expect(named()).not.toContain('x0');
    const row = rows().find(one => one.textContent?.startsWith('x5000'));
    expect(row?.getAttribute('aria-posinset')).toBe('5001');
    expect(row?.style.top).toBe(`${40 * 5000}px`);

    table().scrollTop = 40 * 9992;
    fireEvent.scroll(table());
    expect(named()).toContain('x9999');
  });
});

describe('the keyboard', () => {
  it('moves through the names and stops at both ends', () => {
    show({ view: namesView({ names: many(12) }) });
    expect(current()).toBe('x0');
    press('ArrowUp');
    expect(current()).toBe('x0');
    press('ArrowDown');
    press('ArrowDown');
    expect(current()).toBe('x2');
    press('PageDown');
    expect(current()).toBe('x10');
    press('PageUp');
    expect(current()).toBe('x2');
    press('End');
    expect(current()).toBe('x11');
    press('ArrowDown');
    expect(current()).toBe('x11');
    press('Home');
    expect(current()).toBe('x0');
  });

  it('keeps the current name in sight', () => {
    show({ view: namesView({ names: many(1000) }) });
    press('End');
    expect(table().scrollTop).toBe(40 * (1000 - 8));
    fireEvent.scroll(table());
    expect(current()).toBe('x999');
    press('Home');
    expect(table().scrollTop).toBe(0);
    fireEvent.scroll(table());
    expect(current()).toBe('x0');
  });

  it('asks why with Enter and plans with Delete', () => {
    const { props } = show({ view: namesView({ names: many(3) }) });
    press('ArrowDown');
    press('Enter');
    expect(props.onWhy).toHaveBeenCalledExactlyOnceWith('x1', { name: 'x1' });
    expect(props.onPlan).not.toHaveBeenCalled();
    press('Delete');
    expect(props.onPlan).toHaveBeenCalledExactlyOnceWith({
      names: ['x1'],
      dangling: false,
      empty: false
    });
  });

  it('plans nothing while a clean-up is on screen', () => {
    const { props } = show({
      task: {
        step: 'plan',
        offer: { token: 't', plan: plan() },
        changed: false
      }
    });
    press('Delete');
    expect(props.onPlan).not.toHaveBeenCalled();
    for (const name of ['Delete model', 'Free dangling', 'Empty caches']) {
      expect(button(name).disabled).toBe(true);
    }
  });

  it('is left to a button that has the focus, and other keys to the browser', () => {
    const { props } = show();
    const isLeft = (element: HTMLElement, key: string) =>
      fireEvent.keyDown(element, { key });
    expect(isLeft(button('Why is model there?'), 'Enter')).toBe(true);
    expect(isLeft(button('Delete model'), 'Delete')).toBe(true);
    expect(isLeft(table(), 'Tab')).toBe(true);
    expect(isLeft(table(), 'ArrowDown')).toBe(false);
    expect(props.onWhy).not.toHaveBeenCalled();
    expect(props.onPlan).not.toHaveBeenCalled();
  });
});

describe('the buttons', () => {
  it('of a name ask why and plan to delete it', () => {
    const { props } = show({ view: namesView({ names: some }) });
    fireEvent.click(button('Why is Mid there?'));
    expect(props.onWhy).toHaveBeenCalledExactlyOnceWith('Mid', { name: 'Mid' });
    expect(current()).toBe('Mid');
    fireEvent.click(button('Delete small'));
    expect(props.onPlan).toHaveBeenCalledExactlyOnceWith({
      names: ['small'],
      dangling: false,
      empty: false
    });
  });

  it('above the names plan clean-ups and ask anew', () => {
    const { props } = show();
    fireEvent.click(button('Free dangling'));
    expect(props.onPlan).toHaveBeenLastCalledWith({
      names: [],
      dangling: true,
      empty: false
    });
    fireEvent.click(button('Empty caches'));
    expect(props.onPlan).toHaveBeenLastCalledWith({
      names: [],
      dangling: false,
      empty: true
    });
    fireEvent.click(button('Refresh'));
    expect(props.onRefresh).toHaveBeenCalledTimes(1);
  });

  it('offer to empty caches only where there is one', () => {
    show({ view: namesView({ allocators: [allocator({ reserved: null })] }) });
    expect(button('Empty caches').disabled).toBe(true);
    expect(button('Free dangling').disabled).toBe(false);
  });

  it('do not ask twice', () => {
    show({ isAsking: true });
    expect(button('Refresh').disabled).toBe(true);
  });
});

describe('the notes', () => {
  it('say what is missing from the list', () => {
    show({ view: namesView({ partial: true }, { leftOut: 12 }) });
    expect(screen.getByText(/ran out of time/)).toBeTruthy();
    expect(screen.getByText('12 more rows are not shown.')).toBeTruthy();
    cleanup();
    show();
    expect(screen.queryByText(/ran out of time/)).toBeNull();
    expect(screen.queryByText(/not shown/)).toBeNull();
  });

  it('say that the list is old, and why', () => {
    const view = namesView({}, { isOld: true });
    show({ view });
    expect(screen.getByText('A cell has run since: refresh.')).toBeTruthy();
    cleanup();
    show({ view, isBusy: true });
    expect(screen.getByText('As it was before the running cell.')).toBeTruthy();
    cleanup();
    show({ view, isBusy: true, isAsking: true });
    expect(screen.queryByText(/As it was/)).toBeNull();
    expect(screen.getByRole('status').textContent).toMatch(/^Waiting/);
  });

  it('say why a list did not come', () => {
    show({ view: null, failed: { code: 'gone', text: 'x' } });
    expect(screen.getByRole('alert').textContent).toBe(
      'The kernel has ended or was restarted.'
    );
    expect(screen.queryByRole('region', { name: 'Names' })).toBeNull();
  });

  it('and cards are there beside the names', () => {
    const title = 'w';
    show({
      view: namesView({ others: [held('cycle', 'a cycle')] }),
      task: { step: 'planning', id: 'r1', cancelling: false },
      why: { title, holders: [], notes: [], cuts: [], failed: null }
    });
    for (const name of [
      'Names',
      'Held by no name',
      'Clean-up',
      'Why is w there?'
    ]) {
      expect(screen.getByRole('region', { name })).toBeTruthy();
    }
  });
});

describe('texts', () => {
  it.each(HOSTILE)('number %# of the hostile names is only text', name => {
    const { container, props } = show({
      view: namesView({ names: [nameUse({ name, kind: name })] })
    });
    expect(named()).toEqual([name]);
    expect(container.querySelector('img, script')).toBeNull();
    press('Enter');
    expect(props.onWhy).toHaveBeenCalledExactlyOnceWith(name, { name });
  });

  it('are translated', () => {
    show({
      view: namesView({ partial: true }, { isOld: true, leftOut: 3 }),
      trans: brackets
    });
    const region = screen.getByRole('region', { name: '⟦Names⟧' });
    for (const text of ['⟦Why?⟧', '⟦Delete⟧', '⟦Bytes⟧', '⟦3.0 MiB in 1⟧']) {
      expect(within(region).getByText(text)).toBeTruthy();
    }
    expect(button('⟦Free dangling⟧').title).toMatch(/^⟦/);
    expect(screen.getByText('⟦A cell has run since: refresh.⟧')).toBeTruthy();
  });
});

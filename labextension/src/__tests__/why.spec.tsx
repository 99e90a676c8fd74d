import { nullTranslator } from '@jupyterlab/translation';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { IWhy } from '../notebook';
import { WhyCard } from '../why';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

const button = (name: string) =>
  screen.getByRole<HTMLButtonElement>('button', { name });
const items = () =>
  screen.getAllByRole('listitem').map(item => item.textContent);

describe('why', () => {
  const asked = (over: Partial<IWhy> = {}, isBusy = false) => {
    const onCloseWhy = vi.fn();
    const why = {
      title: 'model',
      holders: null,
      notes: [],
      cuts: [],
      failed: null,
      ...over
    };
    const element = (
      <WhyCard
        why={why}
        isBusy={isBusy}
        onCloseWhy={onCloseWhy}
        trans={trans}
      />
    );
    return { onCloseWhy, element };
  };

  it('waits in words', () => {
    const { rerender } = render(asked().element);
    expect(screen.getByRole('status').textContent).toBe('Searching…');
    rerender(asked({}, true).element);
    expect(screen.getByRole('status').textContent).toBe(
      'Waiting for the running cell…'
    );
  });

  it('is answered with paths and notes, and can be put away', () => {
    const { onCloseWhy, element } = asked({
      holders: [
        { path: 'model.weight', cause: 'name', name: 'model', frees: null },
        { path: 'Out[3]', cause: 'output', name: null, frees: null }
      ],
      notes: ['One more reference was not found.']
    });
    render(element);
    expect(items()).toEqual(['model.weight', 'Out[3]']);
    expect(screen.getByText('One more reference was not found.')).toBeTruthy();
    expect(screen.queryByRole('status')).toBeNull();
    fireEvent.click(button('Close'));
    expect(onCloseWhy).toHaveBeenCalledTimes(1);
  });

  it('names the smallest set that has to go, where one is not enough', () => {
    const { rerender } = render(
      asked({ holders: [], cuts: ['a', 'b.x'] }).element
    );
    expect(
      screen.getByText('To free it, let go of all of: a, b.x')
    ).toBeTruthy();
    rerender(asked({ holders: [] }).element);
    expect(screen.queryByText(/To free it/)).toBeNull();
  });

  it('says of each holder whether it alone is enough', () => {
    const holder = { cause: 'name', name: 'a' };
    render(
      asked({
        holders: [
          { path: 'a', ...holder, frees: true },
          { path: 'b', ...holder, frees: false },
          { path: 'c', ...holder, frees: null }
        ]
      }).element
    );
    expect(items()).toEqual([
      'aletting go of this one alone frees it',
      'bnot enough alone',
      'c'
    ]);
  });

  it('may have no answer', () => {
    render(asked({ failed: { code: 'timeout', text: 'x' } }).element);
    expect(screen.getByRole('alert').textContent).toBe(
      'The kernel did not answer.'
    );
    expect(screen.queryByRole('status')).toBeNull();
  });

  it('takes the focus when it is answered', () => {
    const { rerender } = render(asked().element);
    const heading = screen.getByRole('heading', {
      name: 'Why is model there?'
    });
    expect(document.activeElement).toBe(heading);
    button('Close').focus();
    rerender(asked({}, true).element);
    expect(document.activeElement).toBe(button('Close'));
    rerender(asked({ holders: [] }).element);
    expect(document.activeElement).toBe(heading);
  });
});

import { nullTranslator } from '@jupyterlab/translation';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { IVerdict } from '../protocol';
import { VerdictCard } from '../verdict';
import { brackets, HOSTILE, verdict } from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

function show(over: Partial<IVerdict> = {}, hasTask = false, language = trans) {
  const deeds = { onFree: vi.fn(), onDismiss: vi.fn() };
  const { container } = render(
    <VerdictCard
      verdict={verdict(over)}
      hasTask={hasTask}
      trans={language}
      {...deeds}
    />
  );
  return { ...deeds, container };
}

const lines = () =>
  [...screen.getByRole('alert').querySelectorAll('p')].map(
    one => one.textContent
  );
const button = (name: string) =>
  screen.queryByRole<HTMLButtonElement>('button', { name });

describe('a verdict', () => {
  it('is three lines, and what is back', () => {
    show();
    expect(screen.getByRole('heading', { name: 'Out of memory' })).toBeTruthy();
    expect(lines()).toEqual([
      'out of memory on cuda:0: 2.0 GiB asked; cell [3]',
      'Cause: 1.0 GiB dangles',
      'Cure: free what dangles %gpufree',
      '1.0 GiB that only the error held is back.'
    ]);
  });

  it('of a fault of the device is what it is and what helps', () => {
    show({
      kind: 'fault',
      asked: 'device-side assert: an index is out of bounds',
      cause: '',
      cure: 'restart the kernel',
      code: '',
      dangling: false,
      given_back: 0
    });
    expect(
      screen.getByRole('heading', { name: 'A fault of the device' })
    ).toBeTruthy();
    expect(lines()).toEqual([
      'device-side assert: an index is out of bounds',
      'Cure: restart the kernel'
    ]);
    expect(button('Free dangling')).toBeNull();
  });

  it('leaves the focus where the person types', () => {
    const input = document.body.appendChild(document.createElement('input'));
    input.focus();
    show();
    expect(document.activeElement).toBe(input);
    input.remove();
  });

  it('frees what dangles, one task at a time, and can be put away', () => {
    const { onFree, onDismiss } = show();
    fireEvent.click(button('Free dangling')!);
    expect(onFree).toHaveBeenCalledTimes(1);
    fireEvent.click(button('Dismiss')!);
    expect(onDismiss).toHaveBeenCalledTimes(1);
    cleanup();
    show({}, true);
    expect(button('Free dangling')?.disabled).toBe(true);
    expect(button('Dismiss')?.disabled).toBe(false);
  });

  it.each(HOSTILE)('shows number %# of the hostile texts as text', text => {
    const { container } = show({
      asked: text,
      cause: text,
      cure: text,
      code: text
    });
    expect(screen.getByRole('alert').textContent).toContain(text);
    expect(container.querySelector('img, script')).toBeNull();
  });

  it('is translated', () => {
    show({}, false, brackets);
    expect(screen.getByRole('alert', { name: '⟦Out of memory⟧' })).toBeTruthy();
    expect(lines()[1]).toBe('⟦Cause:⟧ ⟦1.0 GiB dangles⟧');
    expect(button('⟦Dismiss⟧')).toBeTruthy();
  });
});

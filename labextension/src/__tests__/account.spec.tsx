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
import { AccountCard } from '../account';
import type { IAccountView } from '../notebook';
import type { IAccount, IEntry, ISum } from '../protocol';
import { brackets, GIB, HOSTILE, MIB } from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

const entry = (kind: string, nbytes: number | null, note = ''): IEntry => ({
  kind,
  nbytes,
  note
});
const sum = (total: number | null, ...entries: IEntry[]): ISum => ({
  total,
  entries
});

function account(over: Partial<IAccount> = {}): IAccount {
  return {
    framework: 'torch',
    device: 'cuda:0',
    allocated: sum(
      4 * MIB,
      entry('names', 3 * MIB),
      entry('graphs', MIB),
      entry('dangling', 0),
      entry('unexplained', 0)
    ),
    reserved: sum(
      GIB,
      entry('allocated', 4 * MIB),
      entry('cached', 1020 * MIB)
    ),
    used: sum(2 * GIB, entry('reserved', GIB), entry('others', GIB)),
    notes: [],
    partial: false,
    ...over
  };
}

function show(
  over: Partial<IAccountView> = {},
  isBusy = false,
  language = trans
) {
  const onCloseAccount = vi.fn();
  const { container } = render(
    <AccountCard
      account={{ accounts: null, failed: null, ...over }}
      isBusy={isBusy}
      onCloseAccount={onCloseAccount}
      trans={language}
    />
  );
  return { container, onCloseAccount };
}

const rows = (name: RegExp) =>
  within(screen.getByRole('table', { name }))
    .getAllByRole('row')
    .map(row => row.textContent?.trim());
const bars = (container: HTMLElement) =>
  [...container.querySelectorAll('.jp-gpumem-bar')].map(bar =>
    [...bar.children].map(part => (part as HTMLElement).style.width)
  );

describe('an account', () => {
  it('waits in words', () => {
    show();
    expect(screen.getByRole('status').textContent).toBe('Counting…');
    cleanup();
    show({}, true);
    expect(screen.getByRole('status').textContent).toBe(
      'Waiting for the running cell…'
    );
  });

  it('is three sums, each a bar and a table that closes', () => {
    const { container, onCloseAccount } = show({ accounts: [account()] });
    expect(rows(/^torch cuda:0: allocated/)).toEqual([
      'names3.0 MiB',
      'autograd graphs1.0 MiB',
      'unexplained0 B'
    ]);
    expect(rows(/^torch cuda:0: reserved/)).toEqual([
      'allocated4.0 MiB',
      'cached, can go back1020.0 MiB'
    ]);
    expect(rows(/^cuda:0: used by all processes/)).toEqual([
      'reserved1.0 GiB',
      'other processes1.0 GiB'
    ]);
    expect(bars(container)[0]).toEqual(['75%', '25%']);
    expect(bars(container)[2]).toEqual(['50%', '50%']);
    fireEvent.click(screen.getByRole('button', { name: 'Close' }));
    expect(onCloseAccount).toHaveBeenCalledTimes(1);
  });

  it('draws no bar where a part is unknown, and says so', () => {
    const used = sum(
      null,
      entry('reserved', GIB),
      entry('context', null, 'the driver does not tell')
    );
    const { container } = show({ accounts: [account({ used })] });
    expect(rows(/^cuda:0: used/)).toEqual([
      'reserved1.0 GiB',
      'context and librariesthe driver does not tellN/A'
    ]);
    expect(bars(container)).toHaveLength(2);
  });

  it('tells what is less than nothing, and draws it not', () => {
    const allocated = sum(
      MIB,
      entry('names', 2 * MIB),
      entry('outside', -MIB),
      entry('a new part', 0, 'x')
    );
    const { container } = show({ accounts: [account({ allocated })] });
    expect(rows(/^torch cuda:0: allocated/)).toEqual([
      'names2.0 MiB',
      'outside this allocator-1.0 MiB',
      'a new partx0 B'
    ]);
    expect(bars(container)[0]).toEqual(['100%']);
  });

  it('of the host is of resident memory', () => {
    const reserved = sum(GIB, entry('tensors', MIB), entry('rest', 1023 * MIB));
    show({ accounts: [account({ device: 'cpu', reserved })] });
    expect(rows(/^Resident memory of this process/)[0]).toBe(
      'its tensors1.0 MiB'
    );
  });

  it('may be empty, or not come at all', () => {
    show({ accounts: [] });
    expect(screen.getByText(/^No framework/)).toBeTruthy();
    cleanup();
    show({ failed: { code: 'timeout', text: 'x' } });
    expect(screen.getByRole('alert').textContent).toBe(
      'The kernel did not answer.'
    );
  });

  it('takes the focus when it is answered', () => {
    show({ accounts: [account()] });
    expect(document.activeElement).toBe(
      screen.getByRole('heading', { name: 'Account' })
    );
  });

  it('is translated, and hostile texts are text', () => {
    const [hostile] = HOSTILE;
    const { container } = show(
      { accounts: [account({ device: hostile, notes: [hostile] })] },
      false,
      brackets
    );
    expect(screen.getByRole('region', { name: '⟦Account⟧' })).toBeTruthy();
    expect(screen.getByText(`⟦${hostile}⟧`)).toBeTruthy();
    expect(container.querySelector('img, script')).toBeNull();
  });
});

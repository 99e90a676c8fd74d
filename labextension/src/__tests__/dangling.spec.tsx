import { nullTranslator } from '@jupyterlab/translation';
import {
  cleanup,
  fireEvent,
  render,
  screen,
  within
} from '@testing-library/react';
import fc from 'fast-check';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Dangling } from '../dangling';
import type { IHolding } from '../protocol';
import { brackets, GIB, held, holding, HOSTILE, MIB } from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

function show(others: IHolding[], language = trans) {
  const onWhy = vi.fn();
  const { container } = render(
    <Dangling others={others} onWhy={onWhy} trans={language} />
  );
  return { container, onWhy };
}

const groups = () => screen.queryAllByRole<HTMLDetailsElement>('group');
const titles = () =>
  groups().map(group => group.querySelector('summary')?.textContent);

function count(cause: string, most: number): IHolding[] {
  return Array.from({ length: most }, (_, storage) =>
    held(cause, `path ${storage}`, { storage, nbytes: MIB })
  );
}

describe('what no name holds', () => {
  it('is nothing, in words', () => {
    show([]);
    expect(screen.getByText(/^Nothing dangles/)).toBeTruthy();
    expect(groups()).toEqual([]);
  });

  it('comes by its cause, what can be freed first, with the bytes of each', () => {
    show([
      held('registry', 'torch._cache', { storage: 1, nbytes: MIB }),
      held('cycle', 'a cycle', { storage: 2, nbytes: 2 * MIB }),
      held('output', 'Out[3]', { storage: 3, nbytes: 3 * MIB }),
      held('last error', 'sys.last_value', { storage: 4, nbytes: GIB }),
      held('output', 'Out[4]', { storage: 5, nbytes: 4 * MIB })
    ]);
    expect(titles()).toEqual([
      'Last error1.0 GiB',
      'Outputs7.0 MiB',
      'Cycles2.0 MiB',
      'Libraries1.0 MiB'
    ]);
    expect(
      screen.getByRole('heading', { name: 'Held by no name 1.0 GiB' })
    ).toBeTruthy();
    expect(
      within(groups()[1])
        .getAllByRole('listitem')
        .map(item => item.querySelector('.jp-gpumem-path')?.textContent)
    ).toEqual(['Out[3]', 'Out[4]']);
  });

  it('is open where there are few groups, and closed where there are many', () => {
    show([held('cycle', 'a'), held('output', 'b'), held('cache', 'c')]);
    expect(groups().map(group => group.open)).toEqual([true, true, true]);
    cleanup();
    show(['cycle', 'output', 'cache', 'graph'].map(one => held(one, one)));
    expect(groups().map(group => group.open)).toEqual(Array(4).fill(false));
  });

  it('shows a cause that it does not know under the kernel’s word, last', () => {
    show([held('a new cause', 'x'), held('registry', 'y')]);
    expect(titles()).toEqual(['Libraries4.0 MiB', 'a new cause4.0 MiB']);
  });

  it('shows fifty of a group and says how many more there are', () => {
    show(count('cycle', 50));
    expect(screen.getAllByRole('listitem')).toHaveLength(50);
    expect(screen.queryByText(/more$/)).toBeNull();
    cleanup();
    show(count('cycle', 73));
    expect(screen.getAllByRole('listitem')).toHaveLength(50);
    expect(screen.getByText('and 23 more')).toBeTruthy();
    expect(titles()).toEqual(['Cycles73.0 MiB']);
  });

  it('is all there, whatever its causes are', () => {
    const cause = fc.constantFrom('cycle', 'output', 'graph', 'new', 'newer');
    fc.assert(
      fc.property(fc.array(cause, { maxLength: 30 }), causes => {
        show(
          causes.map((one, storage) =>
            held(one, `path ${storage}`, { storage })
          )
        );
        expect(groups()).toHaveLength(new Set(causes).size);
        expect(screen.queryAllByRole('listitem')).toHaveLength(causes.length);
        cleanup();
      }),
      { numRuns: 25 }
    );
  });

  it('says what the tensor is, also where that is not known', () => {
    show([holding(), holding({ storage: 2, tensors: [], device: 'cuda:1' })]);
    const [known, unknown] = screen.getAllByRole('listitem');
    expect(known.textContent).toContain('Tensor · (2, 3) · float32 · cuda:0');
    expect(unknown.querySelector('.jp-gpumem-what')?.textContent).toBe(
      'cuda:1'
    );
  });

  it('asks why of the storage, for it has no name', () => {
    const { onWhy } = show([
      held('cycle', 'a cycle', { storage: 1 }),
      held('cycle', 'another', { storage: 99, device: 'cuda:1' })
    ]);
    fireEvent.click(
      screen.getByRole('button', { name: 'Why is another there?' })
    );
    expect(onWhy).toHaveBeenCalledExactlyOnceWith('another', {
      device: 'cuda:1',
      storage: 99
    });
  });

  it.each(HOSTILE)('shows number %# of the hostile paths as text', path => {
    const { container } = show([held('cycle', path)]);
    expect(screen.getByTitle(path).textContent).toBe(path);
    expect(container.querySelector('img, script')).toBeNull();
  });

  it('is translated', () => {
    show([held('last error', 'x')], brackets);
    expect(
      screen.getByRole('region', { name: '⟦Held by no name⟧' })
    ).toBeTruthy();
    expect(titles()).toEqual(['⟦Last error⟧4.0 MiB']);
    expect(screen.getByText('⟦Why?⟧')).toBeTruthy();
    cleanup();
    show([], brackets);
    expect(screen.getByText(/^⟦Nothing dangles.*⟧$/)).toBeTruthy();
  });
});

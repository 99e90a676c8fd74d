/** Order and filter of the names. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { INameUse } from '../protocol';
import { arranged } from '../tensors';

describe('arranged', () => {
  const use = fc.record<INameUse>({
    name: fc.string({ maxLength: 3 }),
    kind: fc.constantFrom('Tensor', 'Linear', 'list'),
    nbytes: fc.integer({ min: 0, max: 5 }),
    storages: fc.nat(),
    shape: fc.option(fc.array(fc.nat({ max: 9 }), { maxLength: 3 })),
    dtype: fc.constantFrom(null, 'float16', 'float32'),
    devices: fc.subarray(['cuda:0', 'cuda:1', 'cpu'])
  });
  const key = fc.constantFrom(
    'nbytes' as const,
    'name' as const,
    'kind' as const,
    'dtype' as const,
    'devices' as const
  );
  const filter = fc.constantFrom('', 'linear', 'cuda:1 float', 'e', 'nothing');

  it('neither loses nor doubles nor changes a row if there is no filter', () => {
    fc.assert(
      fc.property(fc.array(use), key, fc.boolean(), (list, by, isDown) => {
        const before = [...list];
        const found = arranged(list, ' ', by, isDown);
        expect(list).toEqual(before);
        expect(found).toHaveLength(list.length);
        expect(new Set(found)).toEqual(new Set(list));
      })
    );
  });

  it('leaves exactly the rows that match, in the order of the others', () => {
    fc.assert(
      fc.property(
        fc.array(use),
        filter,
        key,
        fc.boolean(),
        (list, words, by, isDown) => {
          const found = new Set(arranged(list, words, by, isDown));
          const inAll = arranged(list, '', by, isDown);
          expect([...found]).toEqual(inAll.filter(row => found.has(row)));
          for (const row of list) {
            const said = [row.kind, row.dtype, row.name, ...row.devices]
              .join(' ')
              .toLowerCase();
            const has = words.split(' ').every(word => said.includes(word));
            expect(found.has(row)).toBe(has);
          }
        }
      )
    );
  });

  it('orders, and leaves equals as they came, both ways up', () => {
    fc.assert(
      fc.property(fc.array(use), fc.boolean(), (list, isDown) => {
        const found = arranged(list, '', 'nbytes', isDown);
        for (const [index, row] of found.entries()) {
          const next = found[index + 1] as (typeof found)[number] | undefined;
          if (next && next.nbytes !== row.nbytes) {
            expect(next.nbytes < row.nbytes).toBe(isDown);
          } else if (next) {
            expect(list.indexOf(row)).toBeLessThan(list.indexOf(next));
          }
        }
      })
    );
  });
});

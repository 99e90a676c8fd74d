import {
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  age,
  bytes,
  degrees,
  percent,
  shape,
  share,
  signed,
  told,
  usedOf,
  watts
} from '../format';
import { brackets, GIB, KIB, MIB } from './records';

const trans = nullTranslator.load('jupyter_gpumem');
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const amounts = fc.integer({ min: 0, max: 2 ** 53 - 1 });

/** The figure that a text stands for. */
function read(text: string): number {
  const [, number, unit] = /^(-?[\d.]+) (\w+)$/.exec(text) ?? [];
  expect(UNITS, text).toContain(unit);
  return Number(number) * 1024 ** UNITS.indexOf(unit);
}

describe('bytes', () => {
  it.each([
    [0, '0 B'],
    [512, '512 B'],
    [1023, '1023 B'],
    [KIB, '1.0 KiB'],
    [1.5 * GIB, '1.5 GiB'],
    [80 * GIB, '80.0 GiB'],
    [MIB - 1, '1.0 MiB'],
    [1023.9 * KIB, '1023.9 KiB'],
    [2 * 1024 ** 5, '2.0 PiB'],
    [-3 * MIB, '-3.0 MiB']
  ])('writes %d as %s', (value, text) => {
    expect(bytes(value)).toBe(text);
  });

  it('never says 0 for what is not known', () => {
    expect(bytes(null)).toBe('N/A');
    expect(bytes(0)).not.toBe(bytes(null));
  });

  it('can be read back to half of its last digit', () => {
    fc.assert(
      fc.property(amounts, value => {
        const text = bytes(value);
        const unit = 1024 ** UNITS.indexOf(text.split(' ')[1]);
        expect(Math.abs(read(text) - value)).toBeLessThanOrEqual(0.0501 * unit);
      })
    );
  });

  it('never writes 1024 of a unit that has a larger one', () => {
    const near = fc
      .tuple(fc.integer({ min: 1, max: 5 }), fc.integer({ min: -60, max: 60 }))
      .map(([power, off]) =>
        Math.round(1024 ** power + (off / 60) * 1024 ** (power - 1))
      );
    fc.assert(
      fc.property(fc.oneof(amounts, near), value => {
        expect(bytes(value)).not.toMatch(/^1024/);
      })
    );
  });

  it('grows with what it stands for', () => {
    fc.assert(
      fc.property(amounts, amounts, (a, b) => {
        const [less, more] = [Math.min(a, b), Math.max(a, b)];
        expect(read(bytes(less))).toBeLessThanOrEqual(read(bytes(more)));
      })
    );
  });

  it('writes a loss as the gain with a minus sign', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 53 - 1 }), value => {
        expect(bytes(-value)).toBe(`-${bytes(value)}`);
        expect(signed(-value)).toBe(bytes(-value));
        expect(signed(value)).toBe(`+${bytes(value)}`);
      })
    );
    expect(signed(0)).toBe('0 B');
  });
});

describe('usedOf', () => {
  it('names the unit once where both have it', () => {
    expect(usedOf(2 * GIB, 80 * GIB)).toBe('2.0 / 80.0 GiB');
    expect(usedOf(512 * MIB, 80 * GIB)).toBe('512.0 MiB / 80.0 GiB');
    expect(usedOf(0, 80 * GIB)).toBe('0 B / 80.0 GiB');
  });

  it('is not misled by a unit that ends like another', () => {
    expect(usedOf(512, KIB)).toBe('512 B / 1.0 KiB');
  });

  it('says N/A for either figure', () => {
    expect(usedOf(null, 80 * GIB)).toBe('N/A / 80.0 GiB');
    expect(usedOf(2 * GIB, null)).toBe('2.0 GiB / N/A');
    expect(usedOf(null, null)).toBe('N/A / N/A');
  });
});

describe('share', () => {
  it('is null where a figure is missing, and where there is nothing to have a share of', () => {
    expect(share(null, 10)).toBeNull();
    expect(share(10, null)).toBeNull();
    expect(share(10, 0)).toBeNull();
    expect(share(0, 10)).toBe(0);
  });

  it('lies between 0 and 100', () => {
    fc.assert(
      fc.property(amounts, amounts, (part, whole) => {
        const found = share(part, whole);
        expect(found === null || (found >= 0 && found <= 100)).toBe(true);
      })
    );
    expect(share(1, 4)).toBe(25);
    expect(share(90, 80)).toBe(100);
  });
});

describe('gauges', () => {
  it('have their units', () => {
    expect(percent(35.4)).toBe('35 %');
    expect(degrees(41)).toBe('41 °C');
    expect(watts(72400)).toBe('72 W');
  });

  it('tell nothing from zero', () => {
    for (const write of [percent, degrees, watts]) {
      expect(write(null)).toBe('N/A');
      expect(write(0)).toMatch(/^0 /);
    }
  });
});

describe('shape', () => {
  it('is written as Python writes a tuple', () => {
    expect(shape([])).toBe('()');
    expect(shape([5])).toBe('(5,)');
    expect(shape([2, 3])).toBe('(2, 3)');
    expect(shape(null)).toBe('');
  });
});

describe('age', () => {
  it.each([
    [0, '0 s'],
    [8.4, '8 s'],
    [89, '89 s'],
    [90, '2 min'],
    [600, '10 min'],
    [5399, '90 min'],
    [7200, '2 h']
  ])('writes %d s as %s', (seconds, text) => {
    expect(age(seconds)).toBe(text);
  });
});

describe('told', () => {
  it('is the catalogue’s sentence where there is one, and the kernel’s where there is none', () => {
    expect(told('The driver is not loaded.', brackets)).toBe(
      '⟦The driver is not loaded.⟧'
    );
    expect(told('Something new.', trans)).toBe('Something new.');
  });

  it('does not look nothing up: the catalogue’s header is stored under the empty sentence', () => {
    const header = { __: () => 'Project-Id-Version: 1' };
    expect(told('', header as unknown as TranslationBundle)).toBe('');
  });

  it('is the kernel’s sentence where the catalogue gives something that is no text', () => {
    const odd = { __: () => ({ toString: 'no' }) };
    expect(told('constructor', odd as unknown as TranslationBundle)).toBe(
      'constructor'
    );
  });
});

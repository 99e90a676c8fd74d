/** Figures as text. What is null is "N/A", which is never the same as 0. */

import type { TranslationBundle } from '@jupyterlab/translation';

export const NOT_AVAILABLE = 'N/A';

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Bytes with their unit (1024), as the magics write them: `512 B`, `1.5 GiB`. */
export function bytes(value: number | null): string {
  if (value === null) {
    return NOT_AVAILABLE;
  }
  let size = Math.abs(value);
  let unit = 0;
  // 1023.95 would be printed as 1024.0: go one unit up instead
  while (unit < UNITS.length - 1 && size >= 1023.95) {
    size /= 1024;
    unit += 1;
  }
  const number = size.toFixed(unit === 0 ? 0 : 1);
  return `${value < 0 ? '-' : ''}${number} ${UNITS[unit]}`;
}

/** With a plus sign for growth. */
export function signed(value: number): string {
  return value > 0 ? `+${bytes(value)}` : bytes(value);
}

/** `1.2 / 80.0 GiB`, with one unit where both have the same. */
export function usedOf(used: number | null, total: number | null): string {
  const [part, whole] = [bytes(used), bytes(total)];
  const [number, unit] = part.split(' ');
  return unit !== undefined && whole.endsWith(` ${unit}`)
    ? `${number} / ${whole}`
    : `${part} / ${whole}`;
}

/** A share in per cent, or null where one of the figures is missing. */
export function share(
  part: number | null,
  whole: number | null
): number | null {
  return part === null || !whole ? null : Math.min(100, (100 * part) / whole);
}

export function percent(value: number | null): string {
  return value === null ? NOT_AVAILABLE : `${Math.round(value)} %`;
}

export function degrees(value: number | null): string {
  return value === null ? NOT_AVAILABLE : `${value} °C`;
}

/** Milliwatts. */
export function watts(value: number | null): string {
  return value === null ? NOT_AVAILABLE : `${Math.round(value / 1000)} W`;
}

/** `(2, 3)`, as Python writes it. */
export function shape(value: readonly number[] | null): string {
  if (value === null) {
    return '';
  }
  return value.length === 1 ? `(${value[0]},)` : `(${value.join(', ')})`;
}

/** Seconds: `8 s`, `3 min`, `2 h`. */
export function age(seconds: number): string {
  if (seconds < 90) {
    return `${Math.round(seconds)} s`;
  }
  return seconds < 5400
    ? `${Math.round(seconds / 60)} min`
    : `${Math.round(seconds / 3600)} h`;
}

/** A sentence of the kernel's, translated if the catalogue has it. It is not ours: it may be any text. */
export function told(text: string, trans: TranslationBundle): string {
  // a sign of the catalogue's own would be filled in
  const found: unknown =
    text === '' || text.includes('%') ? text : trans.__(text);
  return typeof found === 'string' ? found : text;
}

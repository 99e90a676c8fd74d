/** The chart in a card. */
import { nullTranslator } from '@jupyterlab/translation';
import { cleanup, render, screen } from '@testing-library/react';
import fc from 'fast-check';
import * as React from 'react';
import { afterEach, describe, expect, it } from 'vitest';
import { apart, columns, Devices, type IDevicesProps, line } from '../devices';
import type { IPoint } from '../history';
import { device, GIB, NOW, run } from './records';

const trans = nullTranslator.load('jupyter_gpumem');

afterEach(cleanup);

function show(over: Partial<IDevicesProps> = {}): void {
  const props: IDevicesProps = {
    devices: [device()],
    allocators: [],
    points: new Map(),
    runs: [],
    running: null,
    problem: null,
    alertAt: 90,
    minutes: 10,
    trans,
    ...over
  };
  render(<Devices {...props} />);
}

function series(
  ...used: (number | null)[]
): Pick<IDevicesProps, 'points' | 'minutes'> {
  const points = used.map((value, index) => ({
    time: NOW - (used.length - 1 - index),
    used: value,
    own: value
  }));
  return { points: new Map([['GPU-a', points]]), minutes: 10 };
}

describe('the chart', () => {
  const chart = () => screen.getByRole('img', { name: /Memory of/ });
  const marks = () => [...chart().querySelectorAll('rect')];
  const titles = () => marks().map(mark => mark.textContent);

  it('is not there before there is a sample', () => {
    show();
    expect(screen.queryByRole('img', { name: /Memory of/ })).toBeNull();
  });

  it('says the present and the highest figure', () => {
    show(series(GIB, 5 * GIB, 2 * GIB));
    expect(chart().getAttribute('aria-label')).toBe(
      'Memory of the last 10 min: now 2.0 GiB, highest 5.0 GiB'
    );
  });

  it('marks the cells: their peaks, which of them failed, and the one that runs', () => {
    show({
      ...series(GIB, GIB),
      runs: [
        run({ count: 1, begun: NOW - 300, ended: NOW - 240 }),
        run({ count: 2, begun: NOW - 120, ended: NOW - 60, failed: true }),
        run({
          count: 3,
          begun: NOW - 50,
          ended: NOW - 40,
          peaks: { 'cuda:0': 3 * GIB, 'cuda:1': 9 * GIB }
        })
      ],
      running: run({ count: 4, begun: NOW - 30, ended: null })
    });
    expect(titles()).toEqual([
      'cell [1]',
      'cell [2]',
      'cell [3]: peak 3.0 GiB',
      'cell [4]'
    ]);
    expect(marks().map(mark => mark.dataset.failed)).toEqual([
      undefined,
      'true',
      undefined,
      undefined
    ]);
    expect(marks().map(mark => mark.getAttribute('x'))).toEqual([
      '120',
      '192',
      '220',
      '228'
    ]);
    expect(marks().map(mark => mark.getAttribute('width'))).toEqual([
      '24',
      '24',
      '4',
      '12'
    ]);
    expect(screen.getByText('cell [4] is running')).toBeTruthy();
  });

  it('names the peak of the last cell under it', () => {
    show({
      ...series(GIB),
      runs: [run({ count: 9, peaks: { 'cuda:0': 3 * GIB } })]
    });
    expect(screen.getByText('cell [9] peak 3.0 GiB')).toBeTruthy();
  });

  it('marks a cell that has no number, and leaves out those of long ago', () => {
    show({
      ...series(GIB),
      runs: [
        run({ count: 1, begun: NOW - 3000, ended: NOW - 2000 }),
        run({ count: null })
      ]
    });
    expect(titles()).toEqual(['cell']);
  });

  it('breaks the line where nothing was heard', () => {
    const points = [NOW - 500, NOW - 499, NOW - 100, NOW].map(time => ({
      time,
      used: GIB,
      own: null
    }));
    show({ points: new Map([['GPU-a', points]]) });
    const [used, own] = [...chart().querySelectorAll('path')].map(
      path => path.getAttribute('d') ?? ''
    );
    expect(used.match(/M/g)).toHaveLength(3);
    expect(own).toBe('');
  });
});

describe('columns and line', () => {
  const from = NOW;
  const to = NOW + 600;
  const used = fc.option(fc.integer({ min: 0, max: 2 ** 50 }));
  const points = fc.array(
    fc.record<IPoint>({
      time: fc.integer({ min: from - 300, max: to }),
      used,
      own: used
    })
  );

  it('lose no peak', () => {
    fc.assert(
      fc.property(points, series => {
        const seen = series.filter(
          ({ time, used }) => time >= from && used !== null
        );
        const found = columns(series, point => point.used, from, to);
        const highest = Math.max(-1, ...found.map(value => value ?? -1));
        expect(highest).toBeGreaterThanOrEqual(
          Math.max(-1, ...seen.map(point => point.used ?? -1))
        );
        for (const value of found) {
          expect(value === null || series.some(p => p.used === value)).toBe(
            true
          );
        }
      })
    );
  });

  it('stay on the paper whatever comes', () => {
    const odd = fc.oneof(fc.double(), fc.integer({ min: from, max: to }));
    fc.assert(
      fc.property(
        fc.array(fc.record<IPoint>({ time: odd, used, own: used })),
        fc.integer({ min: 1, max: 2 ** 50 }),
        (series, total) => {
          const found = columns(series, point => point.used, from, to);
          const path = line(found, total, 6);
          expect(found).toHaveLength(241);
          expect(path).toMatch(/^(M\d+ \d+\.\d([ML]\d+ \d+\.\d)*)?$/);
          for (const [, x, y] of path.matchAll(/[ML](\d+) ([\d.]+)/g)) {
            expect(Number(x)).toBeLessThanOrEqual(240);
            expect(Number(y)).toBeLessThanOrEqual(48);
          }
        }
      )
    );
  });

  it('join what is near and leave open what is far', () => {
    expect(line([0, null, 50, null, null, null, 100], 100, 3)).toBe(
      'M0 48.0L0 48.0L2 24.0M6 0.0L6 0.0'
    );
    expect(line([200], 100, 3)).toBe('M0 0.0L0 0.0');
  });
});

describe('marks of cells', () => {
  it('that begin in one column are one, the last of them', () => {
    const runs = [1.1, 1.2, 1.4, 5, 9].map(begun => run({ begun }));
    const drawn = apart(runs, ({ begun }) => Math.round(begun));
    expect(drawn.map(({ begun }) => begun)).toEqual([1.4, 5, 9]);
  });
});

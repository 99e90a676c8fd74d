import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Histories, History } from '../history';
import { device, GIB, MIB, NOW, run, sample, shares } from './records';

describe('History', () => {
  it('keeps what each device used, and how much of it was ours, oldest first', () => {
    const history = new History();
    for (const [step, used] of [1, 3, 2].entries()) {
      history.add(
        sample({
          time: NOW + step,
          devices: [
            device({ used: used * GIB, shares: shares({ own: used * MIB }) }),
            device({ uuid: 'GPU-b', used: GIB })
          ]
        })
      );
    }
    expect(history.points.get('GPU-a')).toEqual([
      { time: NOW, used: GIB, own: MIB },
      { time: NOW + 1, used: 3 * GIB, own: 3 * MIB },
      { time: NOW + 2, used: 2 * GIB, own: 2 * MIB }
    ]);
    expect(history.points.get('GPU-b')?.map(point => point.used)).toEqual([
      GIB,
      GIB,
      GIB
    ]);
    expect(history.points.size).toBe(2);
  });

  it('keeps what is not known as not known', () => {
    const history = new History();
    history.add(
      sample({
        devices: [device({ used: null, shares: shares({ own: null }) })]
      })
    );
    expect(history.points.get('GPU-a')).toEqual([
      { time: NOW, used: null, own: null }
    ]);
  });

  it('forgets the oldest points and never holds more than it may', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 0, max: 60 }),
        (most, count) => {
          const history = new History(most);
          const times = Array.from({ length: count }, (_, step) => NOW + step);
          for (const time of times) {
            history.add(sample({ time }));
          }
          const kept = history.points.get('GPU-a') ?? [];
          expect(kept.map(point => point.time)).toEqual(times.slice(-most));
        }
      )
    );
  });

  it('keeps an hour of seconds', () => {
    const history = new History();
    for (let step = 0; step < 4000; step++) {
      history.add(sample({ time: NOW + step }));
    }
    const kept = history.points.get('GPU-a') ?? [];
    expect(kept).toHaveLength(3600);
    expect(kept[0].time).toBe(NOW + 400);
    expect(kept[3599].time).toBe(NOW + 3999);
  });

  it('keeps one point a second, the highest, however often samples come', () => {
    const history = new History();
    for (const [step, used] of [GIB, 5 * GIB, null, 2 * GIB].entries()) {
      history.add(
        sample({ time: NOW + step / 10, devices: [device({ used })] })
      );
    }
    const [point, ...more] = history.points.get('GPU-a') ?? [];
    expect(point).toMatchObject({ time: NOW, used: 5 * GIB });
    expect(more).toEqual([]);
  });

  it('keeps the last 200 cells', () => {
    const history = new History();
    for (let count = 1; count <= 205; count++) {
      history.end(run({ count }));
    }
    expect(history.runs).toHaveLength(200);
    expect(history.runs[0].count).toBe(6);
    expect(history.runs[199].count).toBe(205);
  });

  it('does not change a list of cells that was handed out', () => {
    const history = new History();
    history.end(run({ count: 1 }));
    const before = history.runs;
    history.end(run({ count: 2 }));
    expect(before.map(({ count }) => count)).toEqual([1]);
    expect(history.runs.map(({ count }) => count)).toEqual([1, 2]);
  });
});

describe('Histories', () => {
  it('keep those of the kernels that were in front last', () => {
    const histories = new Histories(2);
    const first = histories.of('a');
    histories.of('b');
    expect(histories.of('a')).toBe(first);
    histories.of('c');
    expect(histories.of('a')).toBe(first);
    histories.of('d');
    histories.of('e');
    expect(histories.of('a')).not.toBe(first);
  });

  it('forget one that is void', () => {
    const histories = new Histories();
    const first = histories.of('a');
    histories.forget('a');
    expect(histories.of('a')).not.toBe(first);
  });
});

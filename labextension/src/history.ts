/** The last minutes of one kernel, for the charts. */
import type { ICellRun, ISample } from './protocol';

/** One moment of one device, for the chart. */
export interface IPoint {
  time: number;
  used: number | null;
  own: number | null;
}

/** The last minutes of one kernel. */
export class History {
  constructor(readonly most = 3600) {}

  /** uuid → points, oldest first. */
  readonly points = new Map<string, IPoint[]>();
  runs: ICellRun[] = [];

  add(sample: ISample): void {
    for (const device of sample.devices) {
      const series = this.points.get(device.uuid) ?? [];
      const { used, shares } = device;
      const point = { time: sample.time, used, own: shares.own };
      const last = series.at(-1);
      if (last && Math.floor(last.time) === Math.floor(point.time)) {
        // a chart shows no more than a point a second; of those within one the highest, so that no peak is lost
        last.used = highest(last.used, point.used);
        last.own = highest(last.own, point.own);
      } else {
        series.push(point);
      }
      if (series.length > this.most) {
        series.splice(0, series.length - this.most);
      }
      this.points.set(device.uuid, series);
    }
  }

  end(run: ICellRun): void {
    this.runs = [...this.runs.slice(-199), run];
  }
}

/** The histories of the kernels that were in front last. */
export class Histories {
  constructor(readonly most = 8) {}

  /** That of a kernel, which is now in front. */
  of(kernel: string): History {
    const known = this._known.get(kernel) ?? new History();
    this._known.delete(kernel);
    this._known.set(kernel, known);
    for (const oldest of [...this._known.keys()].slice(0, -this.most)) {
      this._known.delete(oldest);
    }
    return known;
  }

  forget(kernel: string): void {
    this._known.delete(kernel);
  }

  private readonly _known = new Map<string, History>();
}

function highest(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.max(a, b);
}

/** The figures of the kernel in front: its newest sample, whether that is late, and what came before it. */
import { Histories, History } from './history';
import type { ICellRun, ISample } from './protocol';

export class Figures {
  get sample(): ISample | null {
    return this._sample;
  }

  get history(): History {
    return this._history;
  }

  /** What last went wrong in taking samples. */
  fault: string | null = null;

  /** Seconds since the newest sample, if that is longer than it should be; else null. */
  get overdue(): number | null {
    if (this._sample === null || this._isSingle) {
      return null;
    }
    const seconds = (performance.now() - this._arrived) / 1000;
    const allowed = Math.max(2.5, (3 * this._sample.interval) / 1000);
    return seconds > allowed ? seconds : null;
  }

  /** The kernel in front is another one, or another process. */
  follow(kernel: string, isNew = false): void {
    if (isNew) {
      this._histories.forget(kernel);
    }
    this._history = this._histories.of(kernel);
  }

  /** Samples come one after the other from now on. */
  begin(): void {
    this._isSingle = false;
    this.fault = null;
  }

  /** A sample has come; a `single` one is not followed by others. Returns whether it ends a fault or a silence. */
  take(sample: ISample, isSingle: boolean): boolean {
    this._isSingle = isSingle;
    const isRelief = this.overdue !== null || this.fault !== null;
    this._sample = sample;
    this._arrived = performance.now();
    this.fault = null;
    this._history.add(sample);
    return isRelief;
  }

  end(run: ICellRun): void {
    this._history.end(run);
  }

  /** Nothing of what was known holds any more; the chart stays. */
  forget(): void {
    this._sample = null;
    this.fault = null;
  }

  private readonly _histories = new Histories();
  private _history = new History();
  private _sample: ISample | null = null;
  private _arrived = 0;
  private _isSingle = false;
}

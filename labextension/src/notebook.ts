/**
 * What the thread that runs the cells is asked: the names, *why?*, and clean-ups.
 *
 * Belongs to one link. All of it waits for a running cell; a clean-up can be cancelled while it waits.
 */
import { type ISignal, Signal } from '@lumino/signaling';
import type { KernelLink, RequestError } from './comm';
import type {
  IAccount,
  IHolder,
  IMoveOffer,
  INames,
  IOffer,
  IParkedName,
  IParking,
  IReport,
  IVerdict
} from './protocol';

/** What is asked of a kernel to be cleaned up. */
export interface IWish {
  names: string[];
  dangling: boolean;
  empty: boolean;
}

type Waiting = 'planning' | 'freeing' | 'moving';

/** A clean-up or a move under way: first the plan, then the report. */
export type Task =
  | { step: Waiting; id: string; cancelling: boolean }
  | { step: 'plan'; offer: IOffer; changed: boolean }
  | { step: 'report'; report: IReport }
  | { step: 'move'; offer: IMoveOffer; changed: boolean }
  | { step: 'moved'; parking: IParking }
  | { step: 'failed'; code: string; text: string };

/** The answer to *why?*, or that it is on its way. */
export interface IWhy {
  title: string;
  holders: IHolder[] | null;
  notes: string[];
  /** The smallest set of references that has to go, where one alone would not free the memory. */
  cuts: string[];
  failed: { code: string; text: string } | null;
}

/** Where the bytes are, or that the answer is on its way. */
export interface IAccountView {
  accounts: IAccount[] | null;
  failed: { code: string; text: string } | null;
}

/** Which way memory is to go: to the host, or back to its device. */
export type Direction = 'park' | 'restore';

/** What *why?* is asked of: a name, or a tensor that has none. */
export type Subject = { name: string } | { device: string; storage: number };

export interface INamesView {
  names: INames;
  /** What lies in host memory and can be brought back. */
  parked: IParkedName[];
  leftOut: number;
  /** Milliseconds that the kernel's search took. */
  took: number;
  /** A cell has run since. */
  isOld: boolean;
}

/** Milliseconds: a longer search for names is only made on demand, for it holds up the next cell. */
const QUICK = 300;

export class Notebook {
  constructor(private readonly link: KernelLink) {}

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get names(): INamesView | null {
    return this._names;
  }

  get isAsking(): boolean {
    return this._isAsking;
  }

  /** Why the last list of names did not come. */
  get failed(): { code: string; text: string } | null {
    return this._failed;
  }

  get task(): Task | null {
    return this._task;
  }

  get why(): IWhy | null {
    return this._why;
  }

  get account(): IAccountView | null {
    return this._account;
  }

  /** Why a cell has failed, until that is dismissed. */
  get verdict(): IVerdict | null {
    return this._verdict;
  }

  /** A cell has run: what is on screen may not hold any more. */
  age(): void {
    if (this._names !== null) {
      this._names = { ...this._names, isOld: true };
      this._changed.emit();
    }
  }

  /** Another process: nothing of what was known holds. */
  forget(): void {
    this._names = null;
    this._failed = null;
    this._task = null;
    this._why = null;
    this._account = null;
    this._verdict = null;
    this._dismissed = 0;
    this._changed.emit();
  }

  /** What the kernel says of its last failure; null: that does not stand any more. */
  judge(verdict: IVerdict | null): void {
    const known = verdict && verdict.id > this._dismissed ? verdict : null;
    if (known?.id !== this._verdict?.id) {
      this._verdict = known;
      this._changed.emit();
    }
  }

  /** Put the verdict away, here at once and then on all pages. */
  async dismissVerdict(): Promise<void> {
    const verdict = this._verdict;
    if (verdict !== null) {
      this._dismissed = verdict.id;
      this.judge(null);
      await this.link
        .ask('dismiss', { verdict: verdict.id })
        .catch(() => undefined);
    }
  }

  /** Ask for the names if there are none or old ones, the kernel is idle, and the search is short. */
  async refreshQuietly(): Promise<void> {
    const { _names: known, link } = this;
    const isWanted = known === null || known.isOld;
    const isQuick = (known?.took ?? 0) <= QUICK;
    if (isWanted && isQuick && link.kernel.status === 'idle') {
      await this.refresh();
    }
  }

  /** Ask for the names anew. Waits for a running cell. */
  async refresh(): Promise<void> {
    if (this._isAsking) {
      return;
    }
    this._isAsking = true;
    this._changed.emit();
    try {
      const answer = await this.link.ask('names', {});
      const { names, parked, left_out: leftOut, took } = answer;
      this._names = { names, parked, leftOut, took, isOld: false };
      this._failed = null;
    } catch (error) {
      this._failed = words(error);
    } finally {
      this._isAsking = false;
      this._changed.emit();
    }
  }

  async askWhy(title: string, of: Subject): Promise<void> {
    const mine: IWhy = {
      title,
      holders: null,
      notes: [],
      cuts: [],
      failed: null
    };
    this._why = mine;
    this._changed.emit();
    const answer: IWhy = await this.link.ask('why', of).then(
      ({ holders, notes, cuts }) => ({ ...mine, holders, notes, cuts }),
      error => ({ ...mine, failed: words(error) })
    );
    if (this._why === mine) {
      this._why = answer;
      this._changed.emit();
    }
  }

  closeWhy(): void {
    this._why = null;
    this._changed.emit();
  }

  /** Ask where the bytes are. Waits for a running cell. */
  async askAccount(): Promise<void> {
    const mine: IAccountView = { accounts: null, failed: null };
    this._account = mine;
    this._changed.emit();
    const answer: IAccountView = await this.link.ask('account', {}).then(
      ({ accounts }) => ({ accounts, failed: null }),
      error => ({ accounts: null, failed: words(error) })
    );
    if (this._account === mine) {
      this._account = answer;
      this._changed.emit();
    }
  }

  closeAccount(): void {
    this._account = null;
    this._changed.emit();
  }

  /** Ask what a clean-up would do. One is under way at a time. */
  async plan(wish: IWish): Promise<void> {
    if (this._isWaiting) {
      return;
    }
    await this._do('planning', started =>
      this.link
        .ask('plan', { ...wish }, started)
        .then(offer => ({ step: 'plan', offer, changed: false }))
    );
  }

  /** Ask what would move to host memory, or back. One task is under way at a time. */
  async planMove(direction: Direction, names: string[]): Promise<void> {
    if (this._isWaiting) {
      return;
    }
    await this._do('planning', started =>
      this.link
        .ask(direction, { names }, started)
        .then(offer => ({ step: 'move', offer, changed: false }))
    );
  }

  /** Do what the plan on screen says. */
  async confirm(): Promise<void> {
    const task = this._task;
    if (task?.step !== 'plan' && task?.step !== 'move') {
      return;
    }
    const { token } = task.offer;
    if (task.step === 'plan') {
      await this._do('freeing', started =>
        this.link
          .ask('free', { token }, started)
          .then(done =>
            'report' in done
              ? { step: 'report', report: done.report }
              : { step: 'plan', offer: done.changed, changed: true }
          )
      );
    } else {
      await this._do('moving', started =>
        this.link
          .ask('move', { token }, started)
          .then(done =>
            'done' in done
              ? { step: 'moved', parking: done.done }
              : { step: 'move', offer: done.changed, changed: true }
          )
      );
    }
    await this.refresh();
  }

  /** Put the plan or the report away; what waits for a running cell is cancelled. */
  async dismiss(): Promise<void> {
    const task = this._task;
    if (task !== null && 'id' in task) {
      this._task = { ...task, cancelling: true };
      this._changed.emit();
      // the request's own answer says how it ended; it comes when the cell lets it, so do not wait for it
      const { cancelled } = await this.link
        .ask('cancel', { target: task.id })
        .catch(() => ({ cancelled: false }));
      if (cancelled && this._task && 'id' in this._task) {
        this._show(this._task.id === task.id ? null : this._task);
      }
      return;
    }
    this._show(null);
  }

  private get _isWaiting(): boolean {
    return this._task !== null && 'id' in this._task;
  }

  private async _do(
    step: Waiting,
    ask: (started: (id: string) => void) => Promise<Task>
  ): Promise<void> {
    let mine = '';
    const isMine = () =>
      this._task !== null && 'id' in this._task && this._task.id === mine;
    try {
      const task = await ask(id => {
        mine = id;
        this._show({ step, id, cancelling: false });
      });
      if (isMine()) {
        this._show(task);
      }
    } catch (error) {
      const { code, text } = words(error);
      if (isMine()) {
        this._show(
          code === 'cancelled' ? null : { step: 'failed', code, text }
        );
      }
    }
  }

  private _show(task: Task | null): void {
    this._task = task;
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private _names: INamesView | null = null;
  private _isAsking = false;
  private _failed: { code: string; text: string } | null = null;
  private _task: Task | null = null;
  private _why: IWhy | null = null;
  private _account: IAccountView | null = null;
  private _verdict: IVerdict | null = null;
  /** The newest verdict that was put away here. */
  private _dismissed = 0;
}

function words(error: unknown): { code: string; text: string } {
  const { code, message } = error as RequestError;
  return { code, text: message };
}

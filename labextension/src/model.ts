/**
 * What the panel shows: the state of the kernel in front, its samples, and its notebook.
 *
 * Asks the kernel only while somebody looks (`isActive`). An answer that comes after the kernel has changed is dropped:
 * every request remembers the link that it was made on.
 */
import { type ISignal, Signal } from '@lumino/signaling';
import type { KernelLink, RequestError } from './comm';
import { Figures } from './figures';
import type { History } from './history';
import { Notebook } from './notebook';
import type { ICellRun, ISample, Message } from './protocol';
import { ASKABLE, type State, hindranceOf, languageOf } from './states';
import type { CurrentKernel } from './tracker';

export interface IOptions {
  /** Milliseconds between samples. */
  interval: number;
  /** Whether the status bar wants a figure while the panel is hidden. */
  inStatusBar: boolean;
}

/** Seconds for which a lease is asked; it is renewed after a third of it. */
const LEASE = 30;
/** Seconds for which a busy kernel may leave the first question unanswered. */
const SILENCE = 40;
/** Seconds between two single samples for the status bar. */
const GLANCE = 10;

export class GpuMemModel {
  constructor(
    private readonly current: CurrentKernel,
    private readonly makeLink: (
      kernel: NonNullable<CurrentKernel['kernel']>
    ) => KernelLink
  ) {
    current.changed.connect(this._follow, this);
    this._clock = setInterval(() => this._onSecond(), 1000);
    this._follow();
  }

  /** State, task or answers have changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** A sample has come. */
  get sampled(): ISignal<this, ISample> {
    return this._sampled;
  }

  /** A cell has ended. */
  get cellEnded(): ISignal<this, ICellRun> {
    return this._cellEnded;
  }

  get state(): State {
    return this._state;
  }

  get sample(): ISample | null {
    return this._figures.sample;
  }

  get history(): History {
    return this._figures.history;
  }

  /** What the thread that runs the cells is asked; null without a kernel. */
  get notebook(): Notebook | null {
    return this._notebook;
  }

  /** The machine of the kernel, if it is another one than the server's. */
  get remoteHost(): string | null {
    return this._remoteHost;
  }

  get isBusy(): boolean {
    return this.current.kernel?.status === 'busy';
  }

  /** What last went wrong in taking samples. */
  get fault(): string | null {
    return this._figures.fault;
  }

  /** Seconds since the newest sample, if that is longer than it should be; else null. */
  get overdue(): number | null {
    return this._figures.overdue;
  }

  get options(): IOptions {
    return this._options;
  }

  set options(value: IOptions) {
    const isFaster = value.interval !== this._options.interval;
    this._options = value;
    if (isFaster && this._isWatching) {
      void this._watch();
    }
    this._changed.emit();
  }

  /** Whether the panel can be seen. While it cannot, nothing is asked and the kernel is left in peace. */
  get isActive(): boolean {
    return this._isActive;
  }

  set isActive(value: boolean) {
    if (value === this._isActive) {
      return;
    }
    this._isActive = value;
    if (value) {
      this._follow();
      void this._watch();
    } else {
      this._unwatch();
    }
  }

  // -------------------------------------------------------- what a person asks for
  /** Run `%load_ext` in the kernel. */
  async load(): Promise<void> {
    const link = this._link;
    if (link === null) {
      return;
    }
    this._set({ type: 'loading' });
    try {
      await link.load();
    } catch (error) {
      if (link === this._link) {
        this._set({ type: 'notInstalled', text: (error as Error).message });
      }
      return;
    }
    if (link === this._link) {
      await this._watch(true);
    }
  }

  dispose(): void {
    clearInterval(this._clock);
    this._unwatch();
    this._link?.dispose();
    Signal.disconnectAll(this);
    Signal.clearData(this);
  }

  // -------------------------------------------------------- the kernel
  private _follow(): void {
    const { kernel, place } = this.current;
    if (kernel?.id !== this._link?.kernel.id || this._link?.isDisposed) {
      this._unwatch();
      this._link?.dispose();
      this._link = null;
      this._notebook = null;
      this._forget();
    }
    if (kernel === null) {
      const starts = place?.context.kernelDisplayStatus;
      this._set(
        place === null
          ? { type: 'noNotebook' }
          : starts === 'initializing' || starts === 'starting'
            ? { type: 'starting' }
            : { type: 'noKernel' }
      );
      return;
    }
    if (this._link === null) {
      this._foreign = null;
      this._link = this.makeLink(kernel);
      this._link.pushed.connect(this._onPushed, this);
      this._link.rebooted.connect(this._onRebooted, this);
      this._notebook = new Notebook(this._link);
      this._notebook.changed.connect(() => this._changed.emit(), this);
      this._figures.follow(kernel.id);
      this._set({ type: 'asking' });
      void this._attach(this._link);
    } else {
      this._onStatus();
    }
    this._changed.emit();
  }

  private _onStatus(): void {
    const kernel = this._link?.kernel;
    const status = kernel?.status;
    const hindrance = kernel && hindranceOf(kernel);
    if (hindrance) {
      this._set(hindrance);
    } else if (this._foreign !== null) {
      this._set({ type: 'notPython', language: this._foreign });
    } else if (
      ['restarting', 'starting', 'dead', 'disconnected'].includes(
        this._state.type
      )
    ) {
      this._set({ type: 'asking' });
      void this._watch(true);
    }
    if (status === 'idle' && this._isActive && this._notebook?.names?.isOld) {
      void this._notebook.refreshQuietly();
    }
    if (status === 'idle' && this._state.type === 'notLoaded') {
      void this._watch(); // the user may have loaded it in a cell
    }
  }

  private async _attach(link: KernelLink): Promise<void> {
    const language = await languageOf(link.kernel);
    if (link !== this._link) {
      return;
    }
    if (language !== 'python') {
      this._foreign = language;
      this._set({ type: 'notPython', language });
      return;
    }
    this._onStatus();
    await this._watch(true);
  }

  /** Take or renew the lease, which also tells whether the extension is loaded. */
  private async _watch(isFirst = false): Promise<void> {
    const link = this._link;
    const wanted = this._isActive && !document.hidden;
    if (
      link === null ||
      !wanted ||
      link === this._asked ||
      !ASKABLE.includes(this._state.type)
    ) {
      return;
    }
    this._asked = link;
    this._askedAt = performance.now();
    try {
      const { interval } = this._options;
      const granted = await link.ask('watch', { interval, lease: LEASE });
      if (link !== this._link) {
        return;
      }
      this._isWatching = true;
      this._figures.begin();
      this._remoteHost = granted.remote ? granted.host : null;
      this._notebook?.judge(granted.verdict);
      this._set({ type: 'ready' });
      void this._notebook?.refreshQuietly();
      if (!this._isActive) {
        this._unwatch();
      }
    } catch (error) {
      if (link === this._link) {
        this._onRefused(link, error as RequestError, isFirst);
      }
    } finally {
      if (this._asked === link) {
        this._asked = null;
      }
    }
  }

  private _onRefused(
    link: KernelLink,
    error: RequestError,
    isFirst: boolean
  ): void {
    this._isWatching = false;
    if (error.code === 'notLoaded') {
      this._figures.forget();
      this._notebook?.forget();
      if (this._state.type !== 'notInstalled') {
        this._set({ type: 'notLoaded' });
      }
    } else if (error.code === 'timeout' && isFirst) {
      // perhaps a kernel without a control channel: ask where every kernel answers, once the cell has ended
      link.withoutControl();
      void link
        .isLoaded()
        .then(loaded => {
          if (link !== this._link) {
            return;
          }
          if (loaded) {
            void this._watch();
          } else {
            this._set({ type: 'notLoaded' });
          }
        })
        .catch(() => undefined);
    }
  }

  private _unwatch(): void {
    const link = this._link;
    if (this._isWatching && link !== null && !link.isDisposed) {
      link.ask('unwatch', {}).catch(() => undefined);
    }
    this._isWatching = false;
  }

  private _onSecond(): void {
    const now = performance.now();
    const sinceAsked = (now - this._askedAt) / 1000;
    if (this._isActive && !document.hidden) {
      const isBack = this._state.type === 'ready' && !this._isWatching;
      if (sinceAsked >= LEASE / 3 || isBack) {
        void this._watch();
      }
      if (
        this._state.type === 'asking' &&
        now - this._since >= 1000 * SILENCE
      ) {
        this._set({ type: 'silent' });
      }
      if (this.overdue !== null) {
        this._changed.emit();
      }
    } else {
      this._unwatch();
      this._glance(now);
    }
  }

  /** A single sample for the status bar, over the control channel: the kernel stays idle to all who ask. */
  private _glance(now: number): void {
    const link = this._link;
    if (
      link === null ||
      document.hidden ||
      !this._options.inStatusBar ||
      now - this._glanced < 1000 * GLANCE ||
      !['asking', 'ready', 'notLoaded'].includes(this._state.type)
    ) {
      return;
    }
    this._glanced = now;
    link
      .ask('sample', {})
      .then(sample => {
        if (link === this._link && !this._isWatching) {
          this._set({ type: 'ready' });
          this._take(sample, true);
        }
      })
      .catch((error: RequestError) => {
        if (link === this._link) {
          this._onRefused(link, error, false);
        }
      });
  }

  // -------------------------------------------------------- what the kernel says
  private _onPushed(_: KernelLink, message: Message): void {
    switch (message.kind) {
      case 'sample':
        if (this._isActive) {
          if (this._state.type !== 'ready') {
            // a page that has been reloaded in the middle of a cell: another lease still holds
            this._set({ type: 'ready' });
          }
          this._take(message, false);
        }
        break;
      case 'cell':
        this._figures.end(message.run);
        this._cellEnded.emit(message.run);
        this._notebook?.age();
        this._changed.emit();
        break;
      case 'verdict':
        this._notebook?.judge(message.verdict);
        break;
      case 'fault':
        this._figures.fault = message.text;
        this._changed.emit();
        break;
      case 'bye':
        this._forget();
        this._set({ type: 'notLoaded' });
        break;
      default:
    }
  }

  private _take(sample: ISample, isSingle: boolean): void {
    const isRelief = this._figures.take(sample, isSingle);
    this._sampled.emit(sample);
    if (isRelief) {
      this._changed.emit();
    }
  }

  private _onRebooted(): void {
    this._forget();
    if (this._link !== null) {
      this._figures.follow(this._link.kernel.id, true);
    }
    this._onStatus();
  }

  /** Nothing of what was known holds any more. */
  private _forget(): void {
    this._figures.forget();
    this._notebook?.forget();
    this._isWatching = false;
    this._changed.emit();
  }

  private _set(state: State): void {
    if (state.type !== this._state.type) {
      this._since = performance.now();
    }
    this._state = state;
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private readonly _sampled = new Signal<this, ISample>(this);
  private readonly _cellEnded = new Signal<this, ICellRun>(this);
  private readonly _clock: ReturnType<typeof setInterval>;
  private readonly _figures = new Figures();
  private _options: IOptions = { interval: 1000, inStatusBar: true };
  private _state: State = { type: 'noNotebook' };
  /** The kernel's language, if it is known to be another than Python. */
  private _foreign: string | null = null;
  private _link: KernelLink | null = null;
  private _notebook: Notebook | null = null;
  private _remoteHost: string | null = null;
  private _isActive = false;
  private _isWatching = false;
  private _asked: KernelLink | null = null;
  private _askedAt = 0;
  /** When the present state began. */
  private _since = 0;
  private _glanced = -Infinity;
}

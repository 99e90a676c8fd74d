/**
 * The link with one kernel: requests that are answered once or time out with words, and what the kernel pushes.
 *
 * No comm is opened: the page hears the comm by its fixed id in the kernel's iopub messages, so a reload, a second tab
 * or a connection that handles no comms loses nothing. Requests that need no tensors go over the control channel, which
 * ipykernel answers while a cell runs; the others wait on the shell channel for the cell to end.
 */
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { UUID } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { type ISignal, Signal } from '@lumino/signaling';
import {
  COMM,
  type IArguments,
  type IReply,
  type IResults,
  type Message,
  type Verb,
  request
} from './protocol';
import { read, resultOf } from './guards';

/** Makes a kernel message: injected, for the real one brings all of `@jupyterlab/services` with it. */
export type CreateMessage = (options: {
  msgType: string;
  channel: string;
  username: string;
  session: string;
  content: unknown;
}) => unknown;

/** Why a request has no result: `code` is the kernel's, or one of ours. */
export class RequestError extends Error {
  constructor(
    readonly code:
      | 'input'
      | 'cancelled'
      | 'busy'
      | 'fault'
      | 'timeout'
      | 'gone'
      | 'notLoaded'
      | 'broken',
    message: string
  ) {
    super(message);
  }
}

interface IWaiting {
  settle(reply: IReply): void;
  fail(error: RequestError): void;
  onShell: boolean;
  /** Seconds for which the kernel has been idle and silent since. */
  idle: number;
}

/** Milliseconds for an answer over the control channel. */
const CONTROL_PATIENCE = 4000;
/** Seconds for which an idle kernel may be silent. */
const SHELL_PATIENCE = 20;
const AT_ONCE: ReadonlySet<Verb> = new Set([
  'watch',
  'unwatch',
  'sample',
  'cancel',
  'dismiss'
]);

export class KernelLink implements IDisposable {
  constructor(
    readonly kernel: Kernel.IKernelConnection,
    private readonly create: CreateMessage
  ) {
    kernel.iopubMessage.connect(this._onIopub, this);
    kernel.statusChanged.connect(this._onStatus, this);
    kernel.disposed.connect(this.dispose, this);
    this._clock = setInterval(() => this._onSecond(), 1000);
  }

  /** What the kernel has pushed: samples, the end of cells, faults, its good-bye. */
  get pushed(): ISignal<this, Message> {
    return this._pushed;
  }

  /** Another process has taken the kernel's place: what was known of the old one is void. */
  get rebooted(): ISignal<this, void> {
    return this._rebooted;
  }

  /** Messages that never arrived. */
  get lost(): number {
    return this._lost;
  }

  get waiting(): number {
    return this._waiting.size;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /**
   * Ask the kernel; `started` is told the request's id, by which it can be cancelled.
   *
   * Rejects with a `RequestError`.
   */
  ask<V extends Verb>(
    verb: V,
    args: IArguments[V],
    started?: (id: string) => void
  ): Promise<IResults[V]> {
    if (this._isDisposed) {
      return Promise.reject(new RequestError('gone', 'The kernel is gone.'));
    }
    const id = UUID.uuid4();
    started?.(id);
    const onShell = !AT_ONCE.has(verb) || !this._hasControl;
    const message = request(id, PAGE, verb, args);
    return new Promise<IResults[V]>((resolve, reject) => {
      const settle = (reply: IReply) => {
        const result = reply.ok ? resultOf(verb, reply) : null;
        if (result !== null) {
          resolve(result);
        } else {
          const { code, text } = reply.error ?? {
            code: 'broken',
            text: 'The kernel’s answer cannot be read: update the older side of jupyter_gpumem.'
          };
          reject(new RequestError(code as RequestError['code'], text));
        }
      };
      this._waiting.set(id, { settle, fail: reject, onShell, idle: 0 });
      if (onShell) {
        this._sendOnShell(message);
      } else {
        this._sendOnControl(id, message);
      }
    });
  }

  /**
   * Whether the extension is loaded, by the kernel's list of comms. Waits for the running cell.
   *
   * For kernels that answer nothing on their control channel.
   */
  async isLoaded(): Promise<boolean> {
    const reply = await this.kernel.requestCommInfo({ target_name: COMM });
    return reply.content.status === 'ok' && COMM in reply.content.comms;
  }

  /** Run `%load_ext`, without a trace in the history. Rejects with the kernel's words. */
  async load(): Promise<void> {
    const future = this.kernel.requestExecute({
      code: '%load_ext jupyter_gpumem',
      silent: false,
      store_history: false,
      stop_on_error: false,
      allow_stdin: false
    });
    let said = '';
    future.onIOPub = message => {
      // IPython prints, rather than raises, that there is no such module
      if (message.header.msg_type === 'stream') {
        said += (message as KernelMessage.IStreamMsg).content.text;
      }
    };
    const reply = await future.done;
    if (reply.content.status !== 'ok') {
      const { evalue } = reply.content as KernelMessage.IReplyErrorContent;
      throw new RequestError('fault', evalue || said.trim());
    }
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    clearInterval(this._clock);
    this._failAll('The kernel is gone.');
    Signal.clearData(this);
  }

  private _message(
    msgType: string,
    channel: string,
    content: unknown
  ): unknown {
    return this.create({
      msgType,
      channel,
      username: this.kernel.username,
      session: this.kernel.clientId,
      content
    });
  }

  private _sendOnShell(message: unknown): void {
    const content = { comm_id: COMM, data: message };
    this.kernel.sendShellMessage(
      this._message(
        'comm_msg',
        'shell',
        content
      ) as KernelMessage.IShellMessage,
      false,
      true
    );
  }

  private _sendOnControl(id: string, message: unknown): void {
    const future = this.kernel.sendControlMessage(
      this._message('comm_info_request', 'control', {
        [COMM]: message
      }) as KernelMessage.IControlMessage,
      true,
      true
    );
    const timer = setTimeout(() => {
      future.dispose();
      this._fail(id, 'timeout', 'The kernel did not answer.');
    }, CONTROL_PATIENCE);
    future.onReply = reply => {
      clearTimeout(timer);
      const content = reply.content as unknown as Record<string, unknown>;
      const received = read(content[COMM]);
      if (received === null) {
        this._fail(
          id,
          'notLoaded',
          'jupyter_gpumem is not loaded in this kernel.'
        );
      } else {
        this._onReceived(received.boot, null, received.message);
      }
    };
    // disposed with the connection: then everything that waits has been told
    future.done.catch(() => clearTimeout(timer));
  }

  private _onIopub(
    _: Kernel.IKernelConnection,
    message: KernelMessage.IIOPubMessage
  ): void {
    if (message.header.msg_type !== 'comm_msg') {
      return;
    }
    const { comm_id, data } = (message as KernelMessage.ICommMsgMsg).content;
    const received = comm_id === COMM ? read(data) : null;
    if (received !== null) {
      this._onReceived(received.boot, received.n, received.message);
    }
  }

  private _onReceived(boot: string, n: number | null, message: Message): void {
    if (this._isDisposed || this._dead.includes(boot)) {
      return; // a late message of a process that has ended
    }
    if (boot !== this._boot) {
      const isAnother = this._boot !== '';
      this._bury();
      this._boot = boot;
      if (isAnother) {
        this._rebooted.emit();
      }
    }
    if (n !== null) {
      this._lost += this._last > 0 ? Math.max(0, n - this._last - 1) : 0;
      this._last = Math.max(this._last, n);
    }
    if (message.kind === 'reply') {
      const waiting = this._waiting.get(message.id);
      this._waiting.delete(message.id);
      waiting?.settle(message);
    } else {
      this._pushed.emit(message);
    }
  }

  private _onStatus(_: Kernel.IKernelConnection, status: Kernel.Status): void {
    if (
      status === 'restarting' ||
      status === 'autorestarting' ||
      status === 'dead' ||
      status === 'terminating'
    ) {
      this._bury();
      this._failAll('The kernel has ended.');
      this._rebooted.emit();
    }
  }

  /** Whatever the present process still sends comes too late. */
  private _bury(): void {
    if (this._boot !== '') {
      this._dead = [...this._dead.slice(-7), this._boot];
    }
    this._boot = '';
    this._last = 0;
  }

  private _onSecond(): void {
    const isIdle = this.kernel.status === 'idle';
    for (const [id, waiting] of this._waiting) {
      waiting.idle = waiting.onShell && isIdle ? waiting.idle + 1 : 0;
      if (waiting.idle >= SHELL_PATIENCE) {
        this._fail(id, 'timeout', 'The kernel is idle and did not answer.');
      }
    }
  }

  private _fail(id: string, code: RequestError['code'], text: string): void {
    const waiting = this._waiting.get(id);
    this._waiting.delete(id);
    waiting?.fail(new RequestError(code, text));
  }

  private _failAll(text: string): void {
    for (const id of [...this._waiting.keys()]) {
      this._fail(id, 'gone', text);
    }
  }

  /** From now on ask on the shell channel: this kernel is silent on the other. */
  withoutControl(): void {
    this._hasControl = false;
  }

  private readonly _pushed = new Signal<this, Message>(this);
  private readonly _rebooted = new Signal<this, void>(this);
  private readonly _clock: ReturnType<typeof setInterval>;
  private readonly _waiting = new Map<string, IWaiting>();
  private _hasControl = true;
  private _isDisposed = false;
  private _boot = '';
  private _dead: string[] = [];
  private _last = 0;
  private _lost = 0;
}

/** This page, among those that watch a kernel. */
const PAGE = UUID.uuid4();

/** A kernel connection as far as the panel uses one; a spec answers for the kernel. */
import type { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type { IReply } from '../protocol';

interface ISent {
  channel: 'shell' | 'control';
  id: string;
  verb: string;
  args: Record<string, unknown>;
}

interface IControlFuture {
  onReply: (message: unknown) => void;
  done: Promise<unknown>;
  dispose(): void;
  isDisposed: boolean;
}

export class FakeKernel {
  readonly clientId = 'client';
  readonly username = '';
  readonly name = 'python3';
  readonly iopubMessage = new Signal<this, unknown>(this);
  readonly statusChanged = new Signal<this, string>(this);
  readonly connectionStatusChanged = new Signal<this, string>(this);
  readonly disposed = new Signal<this, void>(this);
  status = 'idle';
  connectionStatus = 'connected';
  language = 'python';
  /** What was asked, oldest first. */
  readonly sent: ISent[] = [];
  /** What `%load_ext` says: a status, and what it printed. */
  loadReply: { status: string; evalue?: string } = { status: 'ok' };
  loadPrints = '';
  comms: Record<string, unknown> = {};
  boot = 'boot1';
  private n = 0;
  private readonly futures = new Map<string, IControlFuture>();

  constructor(readonly id = 'kernel1') {}

  /** As the type that the code under test takes. */
  get connection(): Kernel.IKernelConnection {
    return this as unknown as Kernel.IKernelConnection;
  }

  /** What the kernelspec declares; the server has none for a remote kernel. */
  declared: string | null = 'python';

  get spec(): Promise<unknown> {
    return Promise.resolve(this.declared && { language: this.declared });
  }

  get info(): Promise<unknown> {
    return Promise.resolve({ language_info: { name: this.language } });
  }

  sendShellMessage(message: { content: { data: ISent } }): void {
    this.sent.push({ ...message.content.data, channel: 'shell' });
  }

  sendControlMessage(message: {
    content: { jupyter_gpumem: ISent };
  }): IControlFuture {
    const asked = message.content.jupyter_gpumem;
    this.sent.push({ ...asked, channel: 'control' });
    const future: IControlFuture = {
      onReply: () => undefined,
      done: new Promise(() => undefined),
      isDisposed: false,
      dispose: () => {
        future.isDisposed = true;
      }
    };
    this.futures.set(asked.id, future);
    return future;
  }

  requestExecute(content: { code: string }): unknown {
    this.executed.push(content);
    const future = {
      onIOPub: undefined as unknown as (message: unknown) => void,
      done: Promise.resolve().then(() => {
        if (this.loadPrints) {
          future.onIOPub({
            header: { msg_type: 'stream' },
            content: { text: this.loadPrints }
          });
        }
        return { content: this.loadReply };
      })
    };
    return future;
  }

  readonly executed: object[] = [];

  requestCommInfo(): Promise<unknown> {
    return this.status === 'busy'
      ? new Promise(() => undefined)
      : Promise.resolve({ content: { status: 'ok', comms: this.comms } });
  }

  /** The last request of a verb. */
  last(verb: string): ISent {
    const found = this.sent.filter(one => one.verb === verb).pop();
    if (found === undefined) {
      throw new Error(`${verb} was not asked`);
    }
    return found;
  }

  count(verb: string): number {
    return this.sent.filter(one => one.verb === verb).length;
  }

  /** Answer a request, on the channel that it came on. */
  async answer(
    asked: ISent,
    outcome: { result: unknown } | { error: { code: string; text: string } }
  ): Promise<void> {
    const reply: Partial<IReply> & object = {
      kind: 'reply',
      id: asked.id,
      verb: asked.verb,
      ok: 'result' in outcome,
      ...outcome
    };
    if (asked.channel === 'control') {
      this.controlReply(asked.id, {
        jupyter_gpumem: { v: 1, boot: this.boot, n: null, ...reply }
      });
    } else {
      this.push(reply);
    }
    await settled();
  }

  /** What the control channel answers to a request, as it is. */
  controlReply(id: string, content: object): void {
    const future = this.futures.get(id);
    if (future && !future.isDisposed) {
      future.onReply({ content });
    }
  }

  /** Send a message of the comm to all pages. */
  push(message: object, boot = this.boot): void {
    this.n += 1;
    this.iopub({ v: 1, boot, n: this.n, ...message });
  }

  /** Lose messages on the way. */
  lose(count: number): void {
    this.n += count;
  }

  iopub(
    data: unknown,
    comm_id = 'jupyter_gpumem',
    msg_type = 'comm_msg'
  ): void {
    this.iopubMessage.emit({
      header: { msg_type },
      content: { comm_id, data }
    });
  }

  become(status: string): void {
    this.status = status;
    this.statusChanged.emit(status);
  }
}

/** What a granted lease answers. */
export const LEASE = {
  result: {
    interval: 1000,
    lease: 30,
    host: 'here',
    remote: false,
    verdict: null
  }
};

/** Until everything that waits for nothing has happened. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) {
    await Promise.resolve();
  }
}

/** A message as `KernelMessage.createMessage` makes it. */
export const createMessage = (options: { content: unknown }): unknown => ({
  header: { msg_id: 'm' },
  content: options.content
});

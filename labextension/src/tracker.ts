/** Which notebook or console is current, hence which kernel the panel follows. Knows no comm and no view. */
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, Session } from '@jupyterlab/services';
import { type ISignal, Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

/** A notebook or a console in a tab of this page. */
export interface IPlace {
  kind: 'notebook' | 'console';
  context: ISessionContext;
}

/** What the trackers of notebooks and consoles have in common here. */
export interface IPlaces {
  /** The place that a widget is, if it is one. */
  find(widget: Widget | null): IPlace | null;
}

/** A notebook or console that uses a kernel of this server, as the session manager names it. */
export interface ISessionName {
  session: string;
  name: string;
  path: string;
  kind: string;
}

export class CurrentKernel {
  constructor(private readonly places: IPlaces) {}

  /** The kernel, its status or its name has changed, or another place has become current. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get place(): IPlace | null {
    return this._place;
  }

  get kernel(): Kernel.IKernelConnection | null {
    const context = this._place?.context;
    return context && !context.isDisposed
      ? (context.session?.kernel ?? null)
      : null;
  }

  /** Follow a widget if it is a notebook or console; any other leaves the last one current. */
  visit(widget: Widget | null): void {
    const place = this.places.find(widget);
    if (place === null || place.context === this._place?.context) {
      return;
    }
    this._leave();
    this._place = place;
    const { context } = place;
    context.kernelChanged.connect(this._onChange, this);
    context.statusChanged.connect(this._onChange, this);
    context.connectionStatusChanged.connect(this._onChange, this);
    context.propertyChanged.connect(this._onChange, this);
    context.disposed.connect(this._onDisposed, this);
    this._changed.emit();
  }

  dispose(): void {
    this._leave();
    Signal.clearData(this);
  }

  private _leave(): void {
    const context = this._place?.context;
    context?.kernelChanged.disconnect(this._onChange, this);
    context?.statusChanged.disconnect(this._onChange, this);
    context?.connectionStatusChanged.disconnect(this._onChange, this);
    context?.propertyChanged.disconnect(this._onChange, this);
    context?.disposed.disconnect(this._onDisposed, this);
    this._place = null;
  }

  private _onChange(): void {
    this._changed.emit();
  }

  private _onDisposed(): void {
    this._leave();
    this._changed.emit();
  }

  private readonly _changed = new Signal<this, void>(this);
  private _place: IPlace | null = null;
}

/** Kernel id → the sessions of this server that use it. A rename is known here, and nowhere else. */
export function namesByKernel(
  sessions: Iterable<Session.IModel>
): Map<string, ISessionName[]> {
  const found = new Map<string, ISessionName[]>();
  for (const { id, kernel, name, path, type } of sessions) {
    if (kernel) {
      const named = {
        session: id,
        name: name || path.split('/').pop() || path,
        path,
        kind: type
      };
      found.set(kernel.id, [...(found.get(kernel.id) ?? []), named]);
    }
  }
  return found;
}

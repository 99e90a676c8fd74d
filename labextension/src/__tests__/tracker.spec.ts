import type { Session } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import { beforeEach, describe, expect, it } from 'vitest';
import { CurrentKernel, type IPlace, namesByKernel } from '../tracker';
import { FakeKernel } from './kernels';

class Context {
  readonly kernelChanged = new Signal<this, void>(this);
  readonly statusChanged = new Signal<this, void>(this);
  readonly connectionStatusChanged = new Signal<this, void>(this);
  readonly propertyChanged = new Signal<this, void>(this);
  readonly disposed = new Signal<this, void>(this);
  isDisposed = false;
  session: { kernel: unknown } | null = { kernel: new FakeKernel() };
}

function place(kind: IPlace['kind'] = 'notebook') {
  const context = new Context();
  const widget = {} as Widget;
  return {
    context,
    widget,
    it: { kind, context } as unknown as IPlace
  };
}

let first: ReturnType<typeof place>;
let second: ReturnType<typeof place>;
let current: CurrentKernel;
let changes: number;

beforeEach(() => {
  first = place();
  second = place('console');
  current = new CurrentKernel({
    find: widget =>
      [first, second].find(one => one.widget === widget)?.it ?? null
  });
  changes = 0;
  current.changed.connect(() => (changes += 1));
});

describe('the current kernel', () => {
  it('is none before a notebook is open', () => {
    expect(current.place).toBeNull();
    expect(current.kernel).toBeNull();
  });

  it('is that of the notebook or console in front', () => {
    current.visit(first.widget);
    expect(current.kernel).toBe(first.context.session?.kernel);
    current.visit(second.widget);
    expect(current.kernel).toBe(second.context.session?.kernel);
    expect(changes).toBe(2);
  });

  it('stays when something else is in front', () => {
    current.visit(first.widget);
    current.visit({} as Widget);
    current.visit(null);
    expect(current.place).toBe(first.it);
    expect(changes).toBe(1);
  });

  it('says when kernel, status or name change, of this notebook only', () => {
    current.visit(first.widget);
    first.context.kernelChanged.emit();
    first.context.statusChanged.emit();
    first.context.connectionStatusChanged.emit();
    first.context.propertyChanged.emit();
    expect(changes).toBe(5);
    current.visit(second.widget);
    first.context.statusChanged.emit();
    expect(changes).toBe(6);
  });

  it('is none when the notebook is closed', () => {
    current.visit(first.widget);
    first.context.disposed.emit();
    expect(current.place).toBeNull();
    expect(changes).toBe(2);
  });

  it('is heard by nobody after the end', () => {
    current.visit(first.widget);
    current.dispose();
    first.context.statusChanged.emit();
    expect(changes).toBe(1);
  });
});

describe('namesByKernel', () => {
  const session = (
    id: string,
    kernel: string | null,
    path: string,
    name = ''
  ) =>
    ({
      id,
      name,
      path,
      type: 'notebook',
      kernel: kernel === null ? null : { id: kernel, name: 'python3' }
    }) as Session.IModel;

  it('lists every notebook and console of a kernel by its present name', () => {
    const found = namesByKernel([
      session('1', 'k1', 'work/a.ipynb', 'a.ipynb'),
      session('2', 'k1', 'work/b.ipynb'),
      session('3', 'k2', 'c.ipynb'),
      session('4', null, 'dead.ipynb')
    ]);
    expect([...found.keys()]).toEqual(['k1', 'k2']);
    expect(found.get('k1')?.map(one => one.name)).toEqual([
      'a.ipynb',
      'b.ipynb'
    ]);
  });
});

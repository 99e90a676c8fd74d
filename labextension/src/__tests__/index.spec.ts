import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import plugin from '../index';
import { FakeKernel, LEASE, settled } from './kernels';
import { device, GIB, KERNEL, MIB, NOW, owner, run, sample } from './records';

vi.hoisted(() => {
  // JupyterLab's notebooks extend these when they are imported, and jsdom has none
  Object.assign(window, {
    IntersectionObserver: class {},
    ResizeObserver: class {}
  });
});

const COMMANDS = [
  'gpumem:open',
  'gpumem:load-extension',
  'gpumem:free-dangling',
  'gpumem:empty-caches',
  'gpumem:refresh-names'
];

/** As much of JupyterLab as the plugin touches. */
class App {
  readonly commands = new CommandRegistry();
  readonly added: [Widget, string, { type: string }][] = [];
  readonly activated: string[] = [];
  readonly restored = Promise.resolve();
  readonly running: object[] = [];
  readonly runningChanged = new Signal<this, void>(this);
  readonly currentChanged = new Signal<this, { newValue: Widget | null }>(this);
  readonly serviceManager = {
    sessions: {
      running: () => this.running,
      runningChanged: this.runningChanged
    }
  };
  readonly shell = {
    currentChanged: this.currentChanged,
    currentWidget: null as Widget | null,
    add: (...one: [Widget, string, { type: string }]) => {
      this.added.push(one);
    },
    activateById: (id: string) => {
      this.activated.push(id);
    }
  };

  /** The arguments in the order in which the plugin names them. */
  start(...tokens: unknown[]): void {
    const given = (plugin.optional ?? []).map((_, at) => tokens[at] ?? null);
    void plugin.activate(this as unknown as JupyterFrontEnd, ...given);
  }

  get panel(): Widget {
    return this.added[0][0];
  }
}

let app: App;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  app = new App();
});

afterEach(() => {
  app.panel.dispose();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe('the plugin without anything that is optional', () => {
  beforeEach(() => app.start());

  it('has the id of its settings, and starts by itself', () => {
    expect(plugin.id).toBe('jupyter-gpumem:plugin');
    expect(plugin.autoStart).toBe(true);
    expect(plugin.requires ?? []).toEqual([]);
  });

  it('puts its panel on the right', () => {
    expect(app.added).toHaveLength(1);
    expect(app.added[0][1]).toBe('right');
    expect(app.panel.id).toBe('jupyter-gpumem-panel');
  });

  it('has commands, each with a label and with a description of its arguments', async () => {
    expect(app.commands.listCommands().sort()).toEqual([...COMMANDS].sort());
    for (const command of COMMANDS) {
      expect(app.commands.label(command)).toMatch(/GPU|gpumem/);
      expect(await app.commands.describedBy(command)).toMatchObject({
        args: { type: 'object' }
      });
    }
  });

  it('can only open its panel where no notebook is', async () => {
    expect(COMMANDS.filter(one => app.commands.isEnabled(one))).toEqual([
      'gpumem:open'
    ]);
    await app.commands.execute('gpumem:open');
    expect(app.activated).toEqual(['jupyter-gpumem-panel']);
  });
});

/** A notebook panel with one cell, in front of the application. */
class NotebookTab extends Widget {
  readonly content: { widgets: object[] };
  readonly sessionContext: object;

  constructor(kernel: FakeKernel) {
    super();
    const cell = document.createElement('div');
    cell.append(this.prompt);
    this.prompt.className = 'jp-InputPrompt';
    const model = { id: 'c0ffee', type: 'code' };
    this.content = { widgets: [{ model, node: cell }] };
    this.sessionContext = {
      isDisposed: false,
      session: { id: 's1', kernel: kernel.connection },
      kernelChanged: new Signal<this, void>(this),
      statusChanged: new Signal<this, void>(this),
      connectionStatusChanged: new Signal<this, void>(this),
      propertyChanged: new Signal<this, void>(this)
    };
    Object.assign(this.sessionContext, {
      disposed: new Signal<this, void>(this)
    });
  }

  readonly prompt = document.createElement('div');
}

describe('the plugin with a notebook', () => {
  let kernel: FakeKernel;
  let tab: NotebookTab;
  let settings: Record<string, unknown>;
  const changed = new Signal<object, void>({});

  const tracker = () => ({
    currentWidget: tab,
    widgetAdded: new Signal<object, void>({}),
    currentChanged: new Signal<object, void>({}),
    find: (test: (one: Widget) => boolean) => [tab].find(test)
  });
  const statusBar = { registerStatusItem: vi.fn() };
  const palette = { addItem: vi.fn() };
  const restorer = { add: vi.fn() };
  const registry = {
    load: async (id: string) => ({
      changed,
      get: (name: string) => ({ composite: settings[name], id })
    })
  };

  beforeEach(async () => {
    vi.clearAllMocks();
    kernel = new FakeKernel(KERNEL);
    tab = new NotebookTab(kernel);
    app.shell.currentWidget = tab;
    settings = {
      interval: 500,
      minutes: 5,
      alertAt: 80,
      notify: true,
      statusBar: 'busiest',
      markCells: true
    };
    app.start(tracker(), null, registry, null, restorer, palette, statusBar);
    await settled();
    Widget.attach(app.panel, document.body);
    await settled();
  });

  /** The kernel grants what the panel asks for. */
  const ready = async () => {
    await kernel.answer(kernel.last('watch'), LEASE);
  };
  const full = (used: number) =>
    sample({ devices: [device({ used, total: 100 * GIB })] });

  it('goes to the palette, the status bar and the restorer', () => {
    expect(palette.addItem.mock.calls.map(([item]) => item.command)).toEqual(
      COMMANDS
    );
    expect(statusBar.registerStatusItem).toHaveBeenCalledTimes(1);
    expect(restorer.add).toHaveBeenCalledExactlyOnceWith(
      app.panel,
      app.panel.id
    );
  });

  it('asks the kernel in front at the interval that is set', () => {
    expect(kernel.last('watch').args).toMatchObject({ interval: 500 });
  });

  it('offers its commands once the kernel answers', async () => {
    const enabled = () => COMMANDS.filter(one => app.commands.isEnabled(one));
    expect(enabled()).toEqual(['gpumem:open']);
    await ready();
    expect(enabled()).toEqual(
      COMMANDS.filter(one => one !== 'gpumem:load-extension')
    );
    kernel.push({ kind: 'bye' });
    expect(enabled()).toEqual(['gpumem:open', 'gpumem:load-extension']);
  });

  it.each([
    ['gpumem:free-dangling', { names: [], dangling: true, empty: false }],
    ['gpumem:empty-caches', { names: [], dangling: false, empty: true }]
  ])('%s opens the panel and asks for a plan', async (command, wish) => {
    await ready();
    void app.commands.execute(command);
    await settled();
    expect(app.activated).toEqual([app.panel.id]);
    expect(kernel.last('plan').args).toEqual(wish);
    expect(kernel.count('free')).toBe(0);
  });

  it('marks a cell that leaves memory behind, until it leaves none', async () => {
    await ready();
    const end = (stayed: Record<string, number>) =>
      kernel.push({ kind: 'cell', run: run({ ended: NOW, stayed }) });
    end({ 'cuda:0': 3 * MIB, 'cuda:1': -9 * MIB });
    expect(tab.prompt.dataset.gpumemStayed).toBe('+3.0 MiB');
    expect(tab.prompt.title).toBe(
      '+3.0 MiB of GPU memory stayed after this cell'
    );
    end({ 'cuda:0': MIB - 1 });
    expect(tab.prompt.dataset.gpumemStayed).toBeUndefined();
    expect(tab.prompt.title).toBe('');
    settings.markCells = false;
    changed.emit();
    end({ 'cuda:0': 3 * MIB });
    expect(tab.prompt.dataset.gpumemStayed).toBeUndefined();
  });

  it('notifies when a GPU becomes full, once until it has been emptier', async () => {
    const warning = vi.spyOn(Notification, 'warning').mockReturnValue('');
    await ready();
    kernel.push(full(79 * GIB));
    expect(warning).not.toHaveBeenCalled();
    kernel.push(full(80 * GIB));
    kernel.push(full(78 * GIB));
    kernel.push(full(90 * GIB));
    expect(warning).toHaveBeenCalledTimes(1);
    expect(warning.mock.calls[0][0]).toBe('GPU 0: 80 % of the memory is used');
    kernel.push(full(74 * GIB));
    kernel.push(full(85 * GIB));
    expect(warning).toHaveBeenCalledTimes(2);
  });

  it('does not notify unless that is set', async () => {
    const warning = vi.spyOn(Notification, 'warning').mockReturnValue('');
    settings.notify = false;
    changed.emit();
    await ready();
    kernel.push(full(100 * GIB));
    expect(warning).not.toHaveBeenCalled();
  });

  it.each([
    ['s1', 'notebook', ['tab1'], []],
    ['s2', 'notebook', [], ['docmanager:open']],
    ['s2', 'console', [], ['console:open']]
  ])('goes to the session %s, a %s', async (id, type, shown, opened) => {
    tab.id = 'tab1';
    const executed: [string, unknown][] = [];
    for (const command of ['docmanager:open', 'console:open']) {
      app.commands.addCommand(command, {
        describedBy: { args: { type: 'object', properties: {} } },
        execute: args => void executed.push([command, args])
      });
    }
    const [name, path] = ['train.ipynb', 'work/train.ipynb'];
    app.running.push({ id, kernel: { id: KERNEL }, name, path, type });
    await ready();
    kernel.push({ ...sample(), owners: [owner()] });
    const link = await vi.waitUntil(() =>
      app.panel.node.querySelector<HTMLElement>('.jp-gpumem-link')
    );
    link.click();
    expect(app.activated).toEqual(shown);
    expect(executed).toEqual(opened.map(command => [command, { path }]));
  });
});

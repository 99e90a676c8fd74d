/** The plugin: commands, settings, translation, and where things go. The only file that touches `app`. */
import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { IConsoleTracker } from '@jupyterlab/console';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { KernelMessage } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';
import { type CreateMessage, KernelLink } from './comm';
import { label } from './devices';
import { percent, share, signed } from './format';
import { GpuMemModel } from './model';
import { GpuMemPanel, type IDeeds, gpuIcon } from './panel';
import type { ICellRun, ISample } from './protocol';
import { type StatusBar, StatusItem } from './status';
import {
  CurrentKernel,
  type IPlaces,
  type ISessionName,
  namesByKernel
} from './tracker';

const PLUGIN = 'jupyter-gpumem:plugin';
/** Bytes from which memory that a cell leaves behind is marked beside it. */
const WORTH_A_MARK = 2 ** 20;

namespace CommandIDs {
  export const open = 'gpumem:open';
  export const load = 'gpumem:load-extension';
  export const freeDangling = 'gpumem:free-dangling';
  export const emptyCaches = 'gpumem:empty-caches';
  export const refresh = 'gpumem:refresh-names';
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Live GPU memory: who holds it, and buttons that give it back.',
  autoStart: true,
  optional: [
    INotebookTracker,
    IConsoleTracker,
    ISettingRegistry,
    ITranslator,
    ILayoutRestorer,
    ICommandPalette,
    IStatusBar
  ],
  activate
};

function activate(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker | null,
  consoles: IConsoleTracker | null,
  registry: ISettingRegistry | null,
  translator: ITranslator | null,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null,
  statusBar: IStatusBar | null
): void {
  const trans = (translator ?? nullTranslator).load('jupyter_gpumem');
  const current = new CurrentKernel(places(notebooks, consoles));
  const model = new GpuMemModel(
    current,
    kernel =>
      new KernelLink(
        kernel,
        KernelMessage.createMessage as unknown as CreateMessage
      )
  );
  const panel = new GpuMemPanel(model, deeds(app, notebooks, consoles), trans);
  app.shell.add(panel, 'right', { rank: 900, type: 'GPU memory' });
  restorer?.add(panel, panel.id);

  // the shell knows what is in front; the trackers know what it is
  app.shell.currentChanged?.connect((_, change) =>
    current.visit(change.newValue)
  );
  const visitShown = () => {
    current.visit(app.shell.currentWidget ?? notebooks?.currentWidget ?? null);
  };
  notebooks?.widgetAdded.connect(visitShown);
  notebooks?.currentChanged.connect(visitShown);
  consoles?.currentChanged.connect(visitShown);
  void app.restored.then(visitShown);
  app.serviceManager.sessions.runningChanged.connect(() => panel.refresh());

  const openPanel = () => app.shell.activateById(panel.id);
  addCommands(app, model, openPanel, palette, trans);
  const status = new StatusItem(model, openPanel, trans);
  statusBar?.registerStatusItem(PLUGIN, {
    item: status,
    align: 'left',
    rank: 20
  });
  const marks = { areOn: true };
  model.cellEnded.connect((_, run) => {
    const notebook = notebooks?.find(
      one => one.sessionContext === current.place?.context
    );
    if (marks.areOn && notebook) {
      mark(notebook, run, trans);
    }
  });
  const alerts = new Alerts(trans);
  model.sampled.connect((_, sample) => alerts.look(sample));

  void registry?.load(PLUGIN).then(settings => {
    const apply = () => {
      const get = <T>(name: string) => settings.get(name).composite as T;
      const what = get<StatusBar>('statusBar');
      model.options = {
        interval: get<number>('interval'),
        inStatusBar: what !== 'off' && statusBar !== null
      };
      panel.settings = {
        alertAt: get<number>('alertAt'),
        minutes: get<number>('minutes')
      };
      alerts.from = get<boolean>('notify') ? get<number>('alertAt') : 0;
      marks.areOn = get<boolean>('markCells');
      status.what = what;
    };
    settings.changed.connect(apply);
    apply();
  });
}

/** A notebook or console panel is recognised by its tracker. */
function places(
  notebooks: INotebookTracker | null,
  consoles: IConsoleTracker | null
): IPlaces {
  return {
    find: widget => {
      const notebook = notebooks?.find(one => one === widget);
      if (notebook) {
        return { kind: 'notebook', context: notebook.sessionContext };
      }
      const console = consoles?.find(one => one === widget);
      return console
        ? { kind: 'console', context: console.sessionContext }
        : null;
    }
  };
}

function deeds(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker | null,
  consoles: IConsoleTracker | null
): IDeeds {
  const { sessions } = app.serviceManager;
  const shown = (session: ISessionName) =>
    notebooks?.find(
      one => one.sessionContext.session?.id === session.session
    ) ??
    consoles?.find(one => one.sessionContext.session?.id === session.session);
  return {
    sessions: () => namesByKernel(sessions.running()),
    open: session => {
      const widget = shown(session);
      if (widget) {
        app.shell.activateById(widget.id);
      } else if (session.kind === 'notebook') {
        void app.commands.execute('docmanager:open', { path: session.path });
      } else {
        void app.commands.execute('console:open', { path: session.path });
      }
    },
    restart: async session => {
      const kernel = shown(session)?.sessionContext.session?.kernel;
      if (kernel) {
        await kernel.restart();
        return;
      }
      const found = await sessions.findById(session.session);
      if (found) {
        const connection = sessions.connectTo({ model: found });
        await connection.kernel?.restart();
        connection.dispose();
      }
    },
    shutDown: session => sessions.shutdown(session.session)
  };
}

function addCommands(
  app: JupyterFrontEnd,
  model: GpuMemModel,
  openPanel: () => void,
  palette: ICommandPalette | null,
  trans: TranslationBundle
): void {
  const isReady = () => model.state.type === 'ready';
  const noArguments = { args: { type: 'object' as const, properties: {} } };
  const { commands } = app;
  commands.addCommand(CommandIDs.open, {
    label: trans.__('Show GPU Memory'),
    icon: gpuIcon,
    describedBy: noArguments,
    execute: openPanel
  });
  commands.addCommand(CommandIDs.load, {
    label: trans.__('Load jupyter_gpumem in This Kernel'),
    describedBy: noArguments,
    isEnabled: () => model.state.type === 'notLoaded',
    execute: () => {
      openPanel();
      return model.load();
    }
  });
  commands.addCommand(CommandIDs.freeDangling, {
    label: trans.__('Free Dangling GPU Memory…'),
    describedBy: noArguments,
    isEnabled: isReady,
    execute: () => {
      openPanel();
      return model.notebook?.plan({ names: [], dangling: true, empty: false });
    }
  });
  commands.addCommand(CommandIDs.emptyCaches, {
    label: trans.__('Empty GPU Memory Caches…'),
    describedBy: noArguments,
    isEnabled: isReady,
    execute: () => {
      openPanel();
      return model.notebook?.plan({ names: [], dangling: false, empty: true });
    }
  });
  commands.addCommand(CommandIDs.refresh, {
    label: trans.__('Refresh GPU Memory Names'),
    describedBy: noArguments,
    isEnabled: isReady,
    execute: () => model.notebook?.refresh()
  });
  model.changed.connect(() => {
    for (const command of Object.values(CommandIDs)) {
      commands.notifyCommandChanged(command);
    }
  });
  for (const command of Object.values(CommandIDs)) {
    palette?.addItem({ command, category: trans.__('GPU Memory') });
  }
}

/** Say beside a cell how much of what it allocated stayed. */
function mark(
  notebook: NotebookPanel,
  run: ICellRun,
  trans: TranslationBundle
): void {
  const stayed = Object.values(run.stayed).reduce(
    (sum, nbytes) => sum + Math.max(0, nbytes),
    0
  );
  const cell = notebook.content.widgets.find(({ model }) =>
    run.cell !== null
      ? model.id === run.cell
      : model.type === 'code' &&
        run.count !== null &&
        model.sharedModel.toJSON().execution_count === run.count
  );
  const prompt = cell?.node.querySelector<HTMLElement>('.jp-InputPrompt');
  if (!prompt) {
    return;
  }
  if (stayed < WORTH_A_MARK) {
    delete prompt.dataset.gpumemStayed;
    prompt.removeAttribute('title');
    return;
  }
  // beside a prompt there is room for three digits
  prompt.dataset.gpumemStayed = signed(stayed).replace(/(\d\d)\.\d/, '$1');
  prompt.title = trans.__(
    '%1 of GPU memory stayed after this cell',
    signed(stayed)
  );
}

/** A notification when a device becomes full, once until it has been emptier. */
class Alerts {
  constructor(private readonly trans: TranslationBundle) {}

  /** Per cent; 0 for never. */
  from = 0;

  look({ devices }: ISample): void {
    for (const device of devices) {
      const used = share(device.used, device.total);
      if (used === null || device.kind === 'host' || this.from === 0) {
        continue;
      }
      if (used >= this.from && !this._told.has(device.uuid)) {
        this._told.add(device.uuid);
        Notification.warning(
          this.trans.__(
            '%1: %2 of the memory is used',
            label(device, devices, this.trans),
            percent(used)
          ),
          { autoClose: 8000 }
        );
      } else if (used < this.from - 5) {
        this._told.delete(device.uuid);
      }
    }
  }

  private readonly _told = new Set<string>();
}

export default plugin;

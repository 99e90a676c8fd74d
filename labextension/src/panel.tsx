/** The sidebar: gives the model's data to the three views, and says by itself whether it can be seen. */
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import {
  LabIcon,
  ReactWidget,
  SidePanel,
  UseSignal
} from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import { Panel } from '@lumino/widgets';
import * as React from 'react';
import { Devices } from './devices';
import { age } from './format';
import type { GpuMemModel } from './model';
import { Processes } from './processes';
import { type State, sentence } from './states';
import { Tensors } from './tensors';
import type { ISessionName } from './tracker';
import { VerdictCard } from './verdict';

export const gpuIcon = new LabIcon({
  name: 'jupyter-gpumem:gpu',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" d="M7 7h10v10H7zm2 2v6h6V9zM9 2h2v3H9zm4 0h2v3h-2zM9 19h2v3H9zm4 0h2v3h-2zM2 9h3v2H2zm0 4h3v2H2zm17-4h3v2h-3zm0 4h3v2h-3z"/></svg>'
});

/** What a person may set. */
export interface ISettings {
  alertAt: number;
  minutes: number;
}

/** What the panel cannot do by itself. */
export interface IDeeds {
  sessions(): ReadonlyMap<string, readonly ISessionName[]>;
  open(session: ISessionName): void;
  restart(session: ISessionName): Promise<void>;
  shutDown(session: ISessionName): Promise<void>;
}

export class GpuMemPanel extends SidePanel {
  constructor(
    private readonly model: GpuMemModel,
    private readonly deeds: IDeeds,
    private readonly trans: TranslationBundle
  ) {
    super({ content: new Panel() });
    this.id = 'jupyter-gpumem-panel';
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU memory');
    this.addClass('jp-gpumem-panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU memory'));
    const { content } = this;
    content.addClass('jp-gpumem-content');
    content.addWidget(this._section('', () => this._stateView()));
    content.addWidget(
      this._section(trans.__('Devices'), () => this._devicesView(), true)
    );
    content.addWidget(
      this._section(trans.__('Who'), () => this._processesView(), true)
    );
    content.addWidget(
      this._section(trans.__('This notebook'), () => this._tensorsView())
    );
  }

  get settings(): ISettings {
    return this._settings;
  }

  set settings(value: ISettings) {
    this._settings = value;
    this._settingsChanged.emit();
  }

  /** The names of sessions have changed. */
  refresh(): void {
    this._settingsChanged.emit();
  }

  override dispose(): void {
    this.model.isActive = false;
    Signal.clearData(this);
    super.dispose();
  }

  protected override onBeforeShow(message: Message): void {
    super.onBeforeShow(message);
    this.model.isActive = true;
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.model.isActive = this.isVisible;
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.isActive = true;
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.model.isActive = false;
  }

  protected override onBeforeDetach(message: Message): void {
    this.model.isActive = false;
    super.onBeforeDetach(message);
  }

  private _section(
    title: string,
    render: () => JSX.Element | null,
    isLive = false
  ): ReactWidget {
    const { model } = this;
    const body = () => (
      <UseSignal signal={model.changed}>
        {() => (
          <UseSignal signal={this._settingsChanged}>
            {() => {
              const content = render();
              return title && content ? (
                <details className="jp-gpumem-section" open>
                  <summary>{title}</summary>
                  {content}
                </details>
              ) : (
                content
              );
            }}
          </UseSignal>
        )}
      </UseSignal>
    );
    const widget = ReactWidget.create(
      isLive ? (
        <UseSignal signal={model.sampled}>{() => body()}</UseSignal>
      ) : (
        body()
      )
    );
    return widget;
  }

  private _stateView(): JSX.Element {
    const { model, trans } = this;
    const { overdue, fault, remoteHost, state, notebook } = model;
    return (
      <div className="jp-gpumem-header" data-state={state.type}>
        <StateLine
          state={state}
          onLoad={() => void model.load()}
          trans={trans}
        />
        {state.type === 'ready' && overdue !== null && (
          <p className="jp-gpumem-alert" role="status">
            {model.isBusy
              ? trans.__(
                  'These figures are %1 old: the running cell lets nothing else run in its kernel.',
                  age(overdue)
                )
              : trans.__(
                  'These figures are %1 old: the kernel is not answering.',
                  age(overdue)
                )}
          </p>
        )}
        {remoteHost !== null && (
          <p className="jp-gpumem-note">
            {trans.__(
              'The kernel runs on another machine, %1: the figures are of that one.',
              remoteHost
            )}
          </p>
        )}
        {fault !== null && (
          <p className="jp-gpumem-alert" role="alert">
            {trans.__('Taking figures failed: %1', fault)}
          </p>
        )}
        {notebook?.verdict && (
          <VerdictCard
            verdict={notebook.verdict}
            hasTask={notebook.task !== null}
            onFree={() =>
              void notebook.plan({ names: [], dangling: true, empty: false })
            }
            onDismiss={() => void notebook.dismissVerdict()}
            trans={trans}
          />
        )}
      </div>
    );
  }

  private _devicesView(): JSX.Element | null {
    const { model, trans } = this;
    const { sample, history } = model;
    return (
      sample && (
        <Devices
          devices={sample.devices}
          allocators={sample.allocators}
          points={history.points}
          runs={history.runs}
          running={sample.running}
          problem={sample.problem}
          alertAt={this._settings.alertAt}
          minutes={this._settings.minutes}
          trans={trans}
        />
      )
    );
  }

  private _processesView(): JSX.Element | null {
    const { model, deeds, trans } = this;
    const { sample } = model;
    return (
      sample && (
        <Processes
          devices={sample.devices}
          owners={sample.owners}
          sessions={deeds.sessions()}
          onOpen={session => deeds.open(session)}
          onRestart={session => void this._confirmed('restart', session)}
          onShutDown={session => void this._confirmed('shutDown', session)}
          trans={trans}
        />
      )
    );
  }

  private async _confirmed(
    deed: 'restart' | 'shutDown',
    session: ISessionName
  ): Promise<void> {
    const { deeds, trans } = this;
    const isRestart = deed === 'restart';
    const label = isRestart ? trans.__('Restart') : trans.__('Shut down');
    const answer = await showDialog({
      title: isRestart
        ? trans.__('Restart the kernel of %1?', session.name)
        : trans.__('Shut down the kernel of %1?', session.name),
      body: trans.__(
        'All of its variables will be lost, and its GPU memory given back.'
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label, ariaLabel: label })
      ]
    });
    if (answer.button.accept) {
      const title = isRestart
        ? trans.__('The kernel could not be restarted')
        : trans.__('The kernel could not be shut down');
      await deeds[deed](session).catch((error: Error) =>
        showErrorMessage(title, error)
      );
    }
  }

  private _tensorsView(): JSX.Element | null {
    const { model, trans } = this;
    const { notebook } = model;
    if (model.state.type !== 'ready' || notebook === null) {
      return null;
    }
    return (
      <Tensors
        view={notebook.names}
        isAsking={notebook.isAsking}
        isBusy={model.isBusy}
        failed={notebook.failed}
        task={notebook.task}
        why={notebook.why}
        account={notebook.account}
        onRefresh={() => void notebook.refresh()}
        onPlan={wish => void notebook.plan(wish)}
        onMove={(direction, names) => void notebook.planMove(direction, names)}
        onConfirm={() => void notebook.confirm()}
        onDismiss={() => void notebook.dismiss()}
        onWhy={(title, of) => void notebook.askWhy(title, of)}
        onCloseWhy={() => notebook.closeWhy()}
        onAccount={() => void notebook.askAccount()}
        onCloseAccount={() => notebook.closeAccount()}
        trans={trans}
      />
    );
  }

  private readonly _settingsChanged = new Signal<this, void>(this);
  private _settings: ISettings = { alertAt: 90, minutes: 10 };
}

function StateLine(props: {
  state: State;
  onLoad: () => void;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { state, onLoad, trans } = props;
  const text = sentence(state, trans);
  if (text === null) {
    return null;
  }
  const canLoad = state.type === 'notLoaded' || state.type === 'notInstalled';
  return (
    <div className="jp-gpumem-state">
      <p role="status">{text}</p>
      {state.type === 'notInstalled' && (
        <p className="jp-gpumem-note">{state.text}</p>
      )}
      {canLoad && (
        <button
          className="jp-gpumem-button jp-mod-primary"
          title={trans.__('Runs %load_ext jupyter_gpumem in the kernel')}
          onClick={onLoad}
        >
          {state.type === 'notLoaded'
            ? trans.__('Load the extension')
            : trans.__('Try again')}
        </button>
      )}
    </div>
  );
}

/** Cards in which a clean-up or a move shows its plan and its report. They take data and callbacks. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { bytes, told } from './format';
import { MovePlan, Moved } from './moving';
import { Notecard } from './notecard';
import type { Task } from './notebook';
import { Pools } from './pools';
import type { IAction, IHolding, IPlan, IReport } from './protocol';

export function TaskCard(props: {
  task: Task;
  isBusy: boolean;
  onConfirm(): void;
  onDismiss(): void;
  trans: TranslationBundle;
}): JSX.Element {
  const { task, isBusy, onConfirm, onDismiss, trans } = props;
  const total = task.step === 'plan' ? promised(task.offer.plan) : null;
  const close = (label: string) => (
    <button className="jp-gpumem-button" onClick={onDismiss}>
      {label}
    </button>
  );
  switch (task.step) {
    case 'planning':
    case 'freeing':
    case 'moving':
      return (
        <Notecard
          title={
            task.step === 'moving' ? trans.__('Move') : trans.__('Clean-up')
          }
          focus={task.step}
        >
          <p role="status">
            {task.cancelling
              ? trans.__('Cancelling…')
              : isBusy
                ? trans.__('Waiting for the running cell to end…')
                : under(task.step, trans)}
          </p>
          <div className="jp-gpumem-toolbar">{close(trans.__('Cancel'))}</div>
        </Notecard>
      );
    case 'plan':
      return (
        <Notecard title={trans.__('Plan')} focus={task.offer.token}>
          {task.changed && <Changed trans={trans} />}
          <Plan plan={task.offer.plan} trans={trans} />
          <div className="jp-gpumem-toolbar">
            <button
              className="jp-gpumem-button jp-mod-primary"
              disabled={task.offer.plan.actions.length === 0}
              onClick={onConfirm}
            >
              {total === null
                ? trans.__('Free')
                : trans.__('Free %1', bytes(total))}
            </button>
            {close(trans.__('Cancel'))}
          </div>
        </Notecard>
      );
    case 'report':
      return (
        <Notecard title={trans.__('Done')} focus="report">
          <Report report={task.report} trans={trans} />
          <div className="jp-gpumem-toolbar">{close(trans.__('Close'))}</div>
        </Notecard>
      );
    case 'move':
      return (
        <Notecard title={trans.__('Plan')} focus={task.offer.token}>
          {task.changed && <Changed trans={trans} />}
          <MovePlan
            parking={task.offer.parking}
            onConfirm={onConfirm}
            trans={trans}
          >
            {close(trans.__('Cancel'))}
          </MovePlan>
        </Notecard>
      );
    case 'moved':
      return (
        <Notecard title={trans.__('Done')} focus="moved">
          <Moved parking={task.parking} trans={trans} />
          <div className="jp-gpumem-toolbar">{close(trans.__('Close'))}</div>
        </Notecard>
      );
    default:
      return (
        <Notecard title={trans.__('Nothing was done')} focus="failed">
          <p role="alert">{failure(task.code, task.text, trans)}</p>
          <div className="jp-gpumem-toolbar">{close(trans.__('Close'))}</div>
        </Notecard>
      );
  }
}

function under(
  step: 'planning' | 'freeing' | 'moving',
  trans: TranslationBundle
): string {
  switch (step) {
    case 'planning':
      return trans.__('Planning…');
    case 'freeing':
      return trans.__('Freeing…');
    default:
      return trans.__('Moving…');
  }
}

function Changed(props: { trans: TranslationBundle }): JSX.Element {
  return (
    <p role="alert">
      {props.trans.__(
        'The notebook has changed meanwhile. Nothing was done; this would happen now:'
      )}
    </p>
  );
}

function steps(trans: TranslationBundle): ReadonlyMap<string, string> {
  return new Map([
    ['delete name', trans.__('delete')],
    ['move to host', trans.__('move to host memory')],
    ['forget last error', trans.__('forget the last error')],
    ['forget output', trans.__('forget output')],
    ['forget namespace', trans.__('forget namespace')],
    ['collect cycles', trans.__('collect cycles')],
    ['clear cache', trans.__('clear cache')],
    ['empty cache', trans.__('empty the cache of')]
  ]);
}

/** What a plan gives back to the allocators, or, if it only empties caches, to the driver. Null where none is known. */
export function promised(plan: IPlan): number | null {
  const of = (isEmpty: boolean) =>
    plan.actions
      .filter(action => (action.step === 'empty cache') === isEmpty)
      .flatMap(action => action.nbytes ?? [])
      .reduce<number | null>((total, size) => (total ?? 0) + size, null);
  return of(false) || of(true);
}

function Actions(props: {
  actions: readonly IAction[];
  trans: TranslationBundle;
}): JSX.Element {
  const { actions, trans } = props;
  const named = steps(trans);
  return (
    <ul className="jp-gpumem-actions">
      {actions.map((action, index) => (
        <li key={index}>
          <span className="jp-gpumem-path">
            {named.get(action.step) ?? action.step}{' '}
            {action.step !== 'collect cycles' && <b>{action.target}</b>}
          </span>
          <span className="jp-gpumem-number">
            {action.nbytes === null ? '?' : bytes(action.nbytes)}
          </span>
          {action.note && (
            <span className="jp-gpumem-what">{told(action.note, trans)}</span>
          )}
        </li>
      ))}
    </ul>
  );
}

function Plan(props: { plan: IPlan; trans: TranslationBundle }): JSX.Element {
  const { plan, trans } = props;
  return (
    <>
      {plan.actions.length === 0 ? (
        <p>{trans.__('There is nothing to free.')}</p>
      ) : (
        <Actions actions={plan.actions} trans={trans} />
      )}
      <Left title={trans.__('This stays:')} holdings={plan.held} />
      {plan.notes.map(note => (
        <p key={note}>{told(note, trans)}</p>
      ))}
    </>
  );
}

function Report(props: {
  report: IReport;
  trans: TranslationBundle;
}): JSX.Element {
  const { report, trans } = props;
  return (
    <>
      <p role="status">{trans.__('%1 freed.', bytes(report.freed))}</p>
      <Pools before={report.before} after={report.after} trans={trans} />
      <Left title={trans.__('Still held:')} holdings={report.left} />
      {report.faults.map(fault => (
        <p key={fault} role="alert">
          {fault}
        </p>
      ))}
    </>
  );
}

const MOST_LEFT = 10;

function Left(props: {
  title: string;
  holdings: readonly IHolding[];
}): JSX.Element | null {
  const { title, holdings } = props;
  if (holdings.length === 0) {
    return null;
  }
  return (
    <>
      <p>{title}</p>
      <ul className="jp-gpumem-actions">
        {holdings.slice(0, MOST_LEFT).map(holding => (
          <li key={`${holding.device} ${holding.storage}`}>
            <span className="jp-gpumem-path">{holding.holder.path}</span>
            <span className="jp-gpumem-number">{bytes(holding.nbytes)}</span>
          </li>
        ))}
        {holdings.length > MOST_LEFT && <li>…</li>}
      </ul>
    </>
  );
}

/** Why something that was asked for did not happen. */
export function failure(
  code: string,
  text: string,
  trans: TranslationBundle
): string {
  switch (code) {
    case 'timeout':
      return trans.__('The kernel did not answer.');
    case 'gone':
      return trans.__('The kernel has ended or was restarted.');
    case 'busy':
      return trans.__('A cell is running; try again when it has ended.');
    case 'broken':
      return trans.__(
        'The kernel’s answer cannot be read: update jupyter_gpumem in the kernel or in JupyterLab.'
      );
    default:
      return told(text, trans);
  }
}

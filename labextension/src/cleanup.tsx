/** Cards in which a clean-up shows its plan and its report, and *why?* its answer. They take data and callbacks. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { NOT_AVAILABLE, bytes, signed, told } from './format';
import type { IWhy, Task } from './notebook';
import type { IAction, IAllocator, IHolding, IPlan, IReport } from './protocol';

// ---------------------------------------------------------------- why
export function WhyCard(props: {
  why: IWhy;
  isBusy: boolean;
  onCloseWhy(): void;
  trans: TranslationBundle;
}): JSX.Element {
  const { why, isBusy, trans } = props;
  return (
    <Notecard
      title={trans.__('Why is %1 there?', why.title)}
      focus={`${why.holders !== null}`}
    >
      {why.holders === null && why.failed === null && (
        <p role="status">
          {isBusy
            ? trans.__('Waiting for the running cell…')
            : trans.__('Searching…')}
        </p>
      )}
      {why.failed && (
        <p role="alert">{failure(why.failed.code, why.failed.text, trans)}</p>
      )}
      {why.holders && (
        <ol className="jp-gpumem-paths">
          {why.holders.map((holder, index) => (
            <li key={index}>{holder.path}</li>
          ))}
        </ol>
      )}
      {why.cuts.length > 0 && (
        <p>
          {trans.__('To free it, let go of all of: %1', why.cuts.join(', '))}
        </p>
      )}
      {why.notes.map(note => (
        <p key={note}>{told(note, trans)}</p>
      ))}
      <div className="jp-gpumem-toolbar">
        <button className="jp-gpumem-button" onClick={props.onCloseWhy}>
          {trans.__('Close')}
        </button>
      </div>
    </Notecard>
  );
}

// ---------------------------------------------------------------- the clean-up
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
      return (
        <Notecard title={trans.__('Clean-up')} focus={task.step}>
          <p role="status">
            {task.cancelling
              ? trans.__('Cancelling…')
              : isBusy
                ? trans.__('Waiting for the running cell to end…')
                : task.step === 'planning'
                  ? trans.__('Planning…')
                  : trans.__('Freeing…')}
          </p>
          <div className="jp-gpumem-toolbar">{close(trans.__('Cancel'))}</div>
        </Notecard>
      );
    case 'plan':
      return (
        <Notecard title={trans.__('Plan')} focus={task.offer.token}>
          {task.changed && (
            <p role="alert">
              {trans.__(
                'The notebook has changed meanwhile. Nothing was done; this would happen now:'
              )}
            </p>
          )}
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
    default:
      return (
        <Notecard title={trans.__('Nothing was done')} focus="failed">
          <p role="alert">{failure(task.code, task.text, trans)}</p>
          <div className="jp-gpumem-toolbar">{close(trans.__('Close'))}</div>
        </Notecard>
      );
  }
}

/** A card that takes the focus when what it says changes, so that keyboard and screen reader follow. */
function Notecard(props: {
  title: string;
  focus: string;
  children: React.ReactNode;
}): JSX.Element {
  const heading = React.useRef<HTMLHeadingElement>(null);
  React.useEffect(() => heading.current?.focus(), [props.focus]);
  return (
    <section className="jp-gpumem-notecard" aria-label={props.title}>
      <h3 ref={heading} tabIndex={-1} className="jp-gpumem-heading">
        {props.title}
      </h3>
      {props.children}
    </section>
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
      <ul className="jp-gpumem-actions">
        {report.after.map(after => {
          const before = report.before.find(
            pool =>
              pool.device === after.device && pool.framework === after.framework
          );
          const grown = (value: (pool: IAllocator) => number | null) => {
            const [now, then] = [value(after), before ? value(before) : null];
            return now === null || then === null ? null : signed(now - then);
          };
          const reserved = grown(pool => pool.reserved);
          return (
            <li key={`${after.framework} ${after.device}`}>
              <span className="jp-gpumem-path">{after.device}</span>
              <span className="jp-gpumem-number">
                {trans.__(
                  'allocated %1',
                  grown(pool => pool.allocated) ?? NOT_AVAILABLE
                )}
              </span>
              {reserved !== null && (
                <span className="jp-gpumem-what">
                  {trans.__('reserved from the driver %1', reserved)}
                </span>
              )}
            </li>
          );
        })}
      </ul>
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

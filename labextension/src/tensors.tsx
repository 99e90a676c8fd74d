/** The names of the notebook with what they keep, what dangles, and the clean-up. Takes data and callbacks. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { AccountCard } from './account';
import { TaskCard, failure } from './cleanup';
import { Dangling } from './dangling';
import { bytes, shape } from './format';
import { ParkedNames, canPark } from './moving';
import type {
  Direction,
  IAccountView,
  INamesView,
  IWhy,
  IWish,
  Subject,
  Task
} from './notebook';
import type { INameUse } from './protocol';
import { WhyCard } from './why';

export interface ITensorsProps {
  view: INamesView | null;
  isAsking: boolean;
  isBusy: boolean;
  /** Why the last list of names did not come. */
  failed: { code: string; text: string } | null;
  task: Task | null;
  why: IWhy | null;
  account: IAccountView | null;
  onRefresh(): void;
  onPlan(wish: IWish): void;
  onMove(direction: Direction, names: string[]): void;
  onConfirm(): void;
  onDismiss(): void;
  onWhy(title: string, of: Subject): void;
  onCloseWhy(): void;
  onAccount(): void;
  onCloseAccount(): void;
  trans: TranslationBundle;
}

export function Tensors(props: ITensorsProps): JSX.Element {
  const { view, isAsking, isBusy, task, why, account, onPlan, trans } = props;
  const hasTask = task !== null;
  const pools =
    view?.names.allocators.filter(pool => pool.reserved !== null) ?? [];
  return (
    <div className="jp-gpumem-tensors">
      <div className="jp-gpumem-toolbar">
        <button
          className="jp-gpumem-button"
          disabled={hasTask}
          onClick={() => onPlan({ names: [], dangling: true, empty: false })}
          title={trans.__('Plan what frees everything that no name keeps')}
        >
          {trans.__('Free dangling')}
        </button>
        <button
          className="jp-gpumem-button"
          disabled={hasTask || pools.length === 0}
          onClick={() => onPlan({ names: [], dangling: false, empty: true })}
          title={trans.__('Give cached memory back to the driver')}
        >
          {trans.__('Empty caches')}
        </button>
        <button
          className="jp-gpumem-button"
          disabled={account !== null}
          onClick={props.onAccount}
          title={trans.__('Where the bytes of each device are')}
        >
          {trans.__('Account')}
        </button>
        <button
          className="jp-gpumem-button"
          disabled={isAsking}
          onClick={props.onRefresh}
        >
          {trans.__('Refresh')}
        </button>
      </div>
      {task && <TaskCard {...props} task={task} />}
      {why && <WhyCard {...props} why={why} />}
      {account && <AccountCard {...props} account={account} />}
      {isAsking && isBusy && (
        <p className="jp-gpumem-note" role="status">
          {trans.__('Waiting for the running cell to list the tensors…')}
        </p>
      )}
      {props.failed && (
        <p className="jp-gpumem-alert" role="alert">
          {failure(props.failed.code, props.failed.text, trans)}
        </p>
      )}
      {view?.isOld && !isAsking && (
        <p className="jp-gpumem-note">
          {isBusy
            ? trans.__('As it was before the running cell.')
            : trans.__('A cell has run since: refresh.')}
        </p>
      )}
      {view && <Names {...props} view={view} />}
      {view && (
        <ParkedNames {...props} parked={view.parked} hasTask={hasTask} />
      )}
      {view && (
        <Dangling
          others={view.names.others}
          onWhy={props.onWhy}
          trans={trans}
        />
      )}
    </div>
  );
}

// ---------------------------------------------------------------- names
type SortKey = 'nbytes' | 'name' | 'kind' | 'dtype' | 'devices';

const ROW = 40;
const VISIBLE = 8;

/** The rows that match every word of the filter, in the order asked for. */
export function arranged(
  rows: readonly INameUse[],
  filter: string,
  key: SortKey,
  isDescending: boolean
): INameUse[] {
  const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = rows.filter(row => {
    const text =
      `${row.name} ${row.kind} ${row.dtype ?? ''} ${shape(row.shape)} ${row.devices.join(' ')}`.toLowerCase();
    return wanted.every(word => text.includes(word));
  });
  const order = isDescending ? -1 : 1;
  const textOf = (row: INameUse) =>
    key === 'devices' ? row.devices.join(' ') : `${row[key] ?? ''}`;
  return matching.sort((a, b) =>
    key === 'nbytes'
      ? order * (a.nbytes - b.nbytes)
      : order * (textOf(a) < textOf(b) ? -1 : textOf(a) > textOf(b) ? 1 : 0)
  );
}

function Names(props: ITensorsProps & { view: INamesView }): JSX.Element {
  const { view, trans } = props;
  const [filter, setFilter] = React.useState('');
  const [key, setKey] = React.useState<SortKey>('nbytes');
  const [isDescending, setDescending] = React.useState(true);
  const all = view.names.names;
  const rows = React.useMemo(
    () => arranged(all, filter, key, isDescending),
    [all, filter, key, isDescending]
  );
  const total = all.reduce((sum, row) => sum + row.nbytes, 0);
  return (
    <section aria-label={trans.__('Names')}>
      <h3 className="jp-gpumem-heading">
        {trans.__('Names')}
        <span className="jp-gpumem-number">
          {trans.__('%1 in %2', bytes(total), all.length)}
        </span>
      </h3>
      {view.names.partial && (
        <p className="jp-gpumem-note">
          {trans.__('The search ran out of time; some holders are missing.')}
        </p>
      )}
      {view.leftOut > 0 && (
        <p className="jp-gpumem-note">
          {trans.__('%1 more rows are not shown.', view.leftOut)}
        </p>
      )}
      {all.length > 0 && (
        <div className="jp-gpumem-toolbar">
          <input
            className="jp-gpumem-filter"
            type="search"
            value={filter}
            placeholder={trans.__('Filter')}
            aria-label={trans.__('Filter names')}
            onChange={event => setFilter(event.target.value)}
          />
          <select
            className="jp-gpumem-select"
            value={key}
            aria-label={trans.__('Sort by')}
            onChange={event => setKey(event.target.value as SortKey)}
          >
            <option value="nbytes">{trans.__('Bytes')}</option>
            <option value="name">{trans.__('Name')}</option>
            <option value="kind">{trans.__('Type')}</option>
            <option value="dtype">{trans.__('dtype')}</option>
            <option value="devices">{trans.__('Device')}</option>
          </select>
          <button
            className="jp-gpumem-button"
            aria-label={
              isDescending ? trans.__('Descending') : trans.__('Ascending')
            }
            onClick={() => setDescending(!isDescending)}
          >
            {isDescending ? '↓' : '↑'}
          </button>
        </div>
      )}
      {rows.length > 0 ? (
        <Table rows={rows} {...props} />
      ) : (
        <p className="jp-gpumem-note">
          {all.length > 0
            ? trans.__('No name matches the filter.')
            : trans.__(
                'No name holds memory of %1.',
                view.names.watched.join(', ')
              )}
        </p>
      )}
    </section>
  );
}

/** A list of which only the rows in sight exist: 10,000 names scroll as ten do. */
function Table(
  props: ITensorsProps & { rows: readonly INameUse[] }
): JSX.Element {
  const { rows, task, onWhy, onPlan, onMove, trans } = props;
  const [top, setTop] = React.useState(0);
  const [current, setCurrent] = React.useState(0);
  const box = React.useRef<HTMLDivElement>(null);
  const active = Math.min(current, rows.length - 1);
  const first = Math.max(0, Math.floor(top / ROW) - 2);
  const shown = rows.slice(first, first + VISIBLE + 6);

  const go = (index: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    setCurrent(next);
    const element = box.current;
    if (element) {
      const visible = element.clientHeight || ROW * VISIBLE;
      if (next * ROW < element.scrollTop) {
        element.scrollTop = next * ROW;
      } else if ((next + 1) * ROW > element.scrollTop + visible) {
        element.scrollTop = (next + 1) * ROW - visible;
      }
    }
  };
  const remove = (row: INameUse) =>
    onPlan({ names: [row.name], dangling: false, empty: false });
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.target !== box.current) {
      return; // a button of a row
    }
    const steps: Record<string, number> = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + VISIBLE,
      PageUp: active - VISIBLE,
      Home: 0,
      End: rows.length - 1
    };
    if (event.key in steps) {
      go(steps[event.key]);
    } else if (event.key === 'Enter') {
      onWhy(rows[active].name, { name: rows[active].name });
    } else if (event.key === 'Delete' && task === null) {
      remove(rows[active]);
    } else {
      return;
    }
    event.preventDefault();
  };
  return (
    <div
      className="jp-gpumem-table"
      role="listbox"
      tabIndex={0}
      aria-label={trans.__(
        'Names. Arrow keys move, Enter asks why, Delete plans to delete.'
      )}
      aria-activedescendant={`jp-gpumem-row-${active}`}
      ref={box}
      style={{ maxHeight: ROW * VISIBLE }}
      onScroll={event => setTop(event.currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
    >
      <div style={{ height: ROW * rows.length, position: 'relative' }}>
        {shown.map((row, offset) => {
          const index = first + offset;
          return (
            <div
              key={row.name}
              id={`jp-gpumem-row-${index}`}
              className="jp-gpumem-name"
              role="option"
              aria-selected={index === active}
              aria-setsize={rows.length}
              aria-posinset={index + 1}
              style={{ top: ROW * index, height: ROW }}
              onClick={() => setCurrent(index)}
            >
              <span className="jp-gpumem-nameText" title={row.name}>
                {row.name}
              </span>
              <span className="jp-gpumem-number">{bytes(row.nbytes)}</span>
              <span className="jp-gpumem-what">
                {[row.kind, shape(row.shape), row.dtype, row.devices.join(', ')]
                  .filter(Boolean)
                  .join(' · ')}
              </span>
              <span className="jp-gpumem-buttons">
                <button
                  className="jp-gpumem-small"
                  tabIndex={index === active ? 0 : -1}
                  aria-label={trans.__('Why is %1 there?', row.name)}
                  onClick={() => onWhy(row.name, { name: row.name })}
                >
                  {trans.__('Why?')}
                </button>
                {canPark(row.devices) && (
                  <button
                    className="jp-gpumem-small"
                    tabIndex={index === active ? 0 : -1}
                    disabled={task !== null}
                    aria-label={trans.__('Move %1 to host memory', row.name)}
                    onClick={() => onMove('park', [row.name])}
                  >
                    {trans.__('To host')}
                  </button>
                )}
                <button
                  className="jp-gpumem-small"
                  tabIndex={index === active ? 0 : -1}
                  disabled={task !== null}
                  aria-label={trans.__('Delete %1', row.name)}
                  onClick={() => remove(row)}
                >
                  {trans.__('Delete')}
                </button>
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** Memory that goes to the host or comes back: the plan, what was done, and what lies there. Takes data and callbacks. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { bytes, told } from './format';
import type { Direction } from './notebook';
import { Pools } from './pools';
import type { IMoved, IParkedName, IParking } from './protocol';

const HOST = 'cpu';

/** Whether any of the devices is one from which memory can go to the host. */
export function canPark(devices: readonly string[]): boolean {
  return devices.some(device => device !== HOST);
}

/** What would move, and what is in its way; `children` are further buttons. */
export function MovePlan(props: {
  parking: IParking;
  onConfirm(): void;
  children: React.ReactNode;
  trans: TranslationBundle;
}): JSX.Element {
  const { parking, onConfirm, trans } = props;
  const { moved, obstacles } = parking;
  const size = bytes(total(moved));
  return (
    <>
      {moved.length === 0 ? (
        <p>{trans.__('There is nothing to move.')}</p>
      ) : (
        <Rows parking={parking} trans={trans} />
      )}
      {obstacles.length > 0 && (
        <div role="alert">
          <p>{trans.__('It cannot be moved:')}</p>
          {obstacles.map(one => (
            <p key={one}>{told(one, trans)}</p>
          ))}
        </div>
      )}
      <Notes notes={parking.notes} trans={trans} />
      <div className="jp-gpumem-toolbar">
        <button
          className="jp-gpumem-button jp-mod-primary"
          disabled={moved.length === 0 || obstacles.length > 0}
          onClick={onConfirm}
        >
          {isParked(parking)
            ? trans.__('Move %1 to host memory', size)
            : trans.__('Bring %1 back', size)}
        </button>
        {props.children}
      </div>
    </>
  );
}

/** What has moved, and what the devices gained or lost by it. */
export function Moved(props: {
  parking: IParking;
  trans: TranslationBundle;
}): JSX.Element {
  const { parking, trans } = props;
  const size = bytes(total(parking.moved));
  return (
    <>
      <p role="status">
        {isParked(parking)
          ? trans.__('%1 moved to host memory.', size)
          : trans.__('%1 brought back.', size)}
      </p>
      <Pools before={parking.before} after={parking.after} trans={trans} />
      <Notes notes={parking.notes} trans={trans} />
    </>
  );
}

/** The names that lie in host memory, each with the way back. */
export function ParkedNames(props: {
  parked: readonly IParkedName[];
  hasTask: boolean;
  onMove(direction: Direction, names: string[]): void;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { parked, hasTask, onMove, trans } = props;
  if (parked.length === 0) {
    return null;
  }
  const all = [...new Set(parked.map(one => one.name))];
  return (
    <section aria-label={trans.__('In host memory')}>
      <h3 className="jp-gpumem-heading">
        {trans.__('In host memory')}
        <span className="jp-gpumem-number">{bytes(total(parked))}</span>
      </h3>
      <ul>
        {parked.map(({ name, device, nbytes }) => (
          <li key={`${name} ${device}`} className="jp-gpumem-holding">
            <span className="jp-gpumem-path" title={name}>
              {name}
            </span>
            <span className="jp-gpumem-number">{bytes(nbytes)}</span>
            <span className="jp-gpumem-what">
              {trans.__('belongs to %1', device)}
            </span>
            <span className="jp-gpumem-buttons">
              <button
                className="jp-gpumem-small"
                disabled={hasTask}
                aria-label={trans.__('Bring %1 back', name)}
                onClick={() => onMove('restore', [name])}
              >
                {trans.__('Bring back')}
              </button>
            </span>
          </li>
        ))}
      </ul>
      {all.length > 1 && (
        <div className="jp-gpumem-toolbar">
          <button
            className="jp-gpumem-button"
            disabled={hasTask}
            onClick={() => onMove('restore', all)}
          >
            {trans.__('Bring all back')}
          </button>
        </div>
      )}
    </section>
  );
}

function Rows(props: {
  parking: IParking;
  trans: TranslationBundle;
}): JSX.Element {
  const { parking, trans } = props;
  return (
    <ul className="jp-gpumem-actions">
      {parking.moved.map(({ name, device, nbytes }) => (
        <li key={`${name} ${device}`}>
          <span className="jp-gpumem-path">
            <b>{name}</b>
          </span>
          <span className="jp-gpumem-number">{bytes(nbytes)}</span>
          <span className="jp-gpumem-what">
            {isParked(parking)
              ? trans.__('from %1 to host memory', device)
              : trans.__('from host memory to %1', device)}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Notes(props: {
  notes: readonly string[];
  trans: TranslationBundle;
}): JSX.Element {
  return (
    <>
      {props.notes.map(note => (
        <p key={note}>{told(note, props.trans)}</p>
      ))}
    </>
  );
}

function isParked(parking: IParking): boolean {
  return parking.direction === 'park';
}

function total(rows: readonly (IMoved | IParkedName)[]): number {
  return rows.reduce((sum, row) => sum + row.nbytes, 0);
}

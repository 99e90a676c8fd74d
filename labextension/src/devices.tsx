/** A card for each device: who uses its memory now, and its last minutes. Takes data, knows no model. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import {
  age,
  bytes,
  degrees,
  percent,
  share,
  told,
  usedOf,
  watts
} from './format';
import type { IPoint } from './history';
import type { IAllocator, ICellRun, IDevice, IShares } from './protocol';

type Part = keyof IShares;

const PARTS: Part[] = ['own', 'notebooks', 'others', 'unattributed', 'free'];
/** With more devices than this a card is one line until it is opened. */
const MOST_OPEN = 2;

function words(trans: TranslationBundle): Record<Part, string> {
  return {
    own: trans.__('this notebook'),
    notebooks: trans.__('other notebooks'),
    others: trans.__('other processes'),
    unattributed: trans.__('unattributed'),
    free: trans.__('free')
  };
}

export interface IDevicesProps {
  devices: readonly IDevice[];
  allocators: readonly IAllocator[];
  /** uuid → its points, oldest first. */
  points: ReadonlyMap<string, readonly IPoint[]>;
  runs: readonly ICellRun[];
  running: ICellRun | null;
  /** Why there is no GPU. */
  problem: string | null;
  /** Per cent from which a device is pointed out; 0 for never. */
  alertAt: number;
  /** Minutes that the chart shows. */
  minutes: number;
  trans: TranslationBundle;
}

export function Devices(props: IDevicesProps): JSX.Element {
  const { devices, problem, trans } = props;
  const gpus = gpusOf(devices);
  const shown = gpus.length > 0 ? gpus : devices;
  return (
    <div className="jp-gpumem-devices">
      {problem !== null && (
        <p className="jp-gpumem-note" role="status">
          {told(problem, trans)}
        </p>
      )}
      <ul className="jp-gpumem-cards" aria-label={trans.__('Devices')}>
        {shown.map(device => (
          <Card
            key={device.uuid}
            device={device}
            isOpen={shown.length <= MOST_OPEN}
            {...props}
          />
        ))}
      </ul>
    </div>
  );
}

/** All but the host. */
export function gpusOf(devices: readonly IDevice[]): IDevice[] {
  return devices.filter(device => device.kind !== 'host');
}

/** Devices of which none is a part of another: of a GPU that is split its instances, the host only without any. */
export function wholes(devices: readonly IDevice[]): IDevice[] {
  const gpus = gpusOf(devices);
  const parents = new Set(gpus.map(device => device.parent));
  return gpus.length > 0
    ? gpus.filter(device => !parents.has(device.uuid))
    : [...devices];
}

/** `GPU 0`, `GPU 0 · MIG 1`, or the host. */
export function label(
  device: IDevice,
  devices: readonly IDevice[],
  trans: TranslationBundle
): string {
  if (device.kind === 'host') {
    return trans.__('Host memory');
  }
  const index = device.index ?? '?';
  if (device.kind !== 'mig') {
    return trans.__('GPU %1', index);
  }
  const parent = devices.find(other => other.uuid === device.parent);
  return trans.__('GPU %1 · MIG %2', parent?.index ?? '?', index);
}

function Card(
  props: IDevicesProps & { device: IDevice; isOpen: boolean }
): JSX.Element {
  const { device, devices, alertAt, trans } = props;
  const [isOpen, setOpen] = React.useState(props.isOpen);
  const used = share(device.used, device.total);
  const isFull = alertAt > 0 && used !== null && used >= alertAt;
  const title = label(device, devices, trans);
  return (
    <li
      className={`jp-gpumem-card jp-gpumem-${device.kind}`}
      data-alert={isFull || undefined}
      data-uuid={device.uuid}
    >
      <button
        className="jp-gpumem-cardHead"
        aria-expanded={isOpen}
        title={isOpen ? trans.__('Show less') : trans.__('Show more')}
        onClick={() => setOpen(!isOpen)}
      >
        <span className="jp-gpumem-cardTitle">{title}</span>
        {device.kind !== 'host' && (
          <span className="jp-gpumem-cardName" title={device.name}>
            {device.name}
          </span>
        )}
        <span className="jp-gpumem-cardUsed">
          {usedOf(device.used, device.total)}
        </span>
      </button>
      <Bar device={device} title={title} trans={trans} />
      {isFull && (
        <p className="jp-gpumem-alert" role="alert">
          {trans.__('%1 of the memory is used', percent(used))}
        </p>
      )}
      {isOpen && <Details {...props} />}
    </li>
  );
}

function Bar(props: {
  device: IDevice;
  title: string;
  trans: TranslationBundle;
}): JSX.Element {
  const { device, title, trans } = props;
  const names = words(trans);
  const parts = PARTS.filter(part => part !== 'free' && device.shares[part]);
  const told = parts.map(
    part => `${names[part]} ${bytes(device.shares[part])}`
  );
  return (
    <div
      className="jp-gpumem-bar"
      role="img"
      aria-label={[title, usedOf(device.used, device.total), ...told].join(
        ', '
      )}
    >
      {parts.map(part => (
        <span
          key={part}
          className={`jp-gpumem-part jp-gpumem-${part}`}
          style={{ width: `${share(device.shares[part], device.total) ?? 0}%` }}
          title={`${names[part]}: ${bytes(device.shares[part])}`}
        />
      ))}
    </div>
  );
}

function Details(props: IDevicesProps & { device: IDevice }): JSX.Element {
  const { device, allocators, trans } = props;
  const names = words(trans);
  const pools = allocators.filter(
    pool => device.alias !== null && pool.device === device.alias
  );
  return (
    <div className="jp-gpumem-details">
      <ul className="jp-gpumem-legend">
        {PARTS.filter(
          part => device.shares[part] !== 0 || part === 'own' || part === 'free'
        ).map(part => (
          <li key={part}>
            <span className={`jp-gpumem-swatch jp-gpumem-${part}`} />
            <span>{names[part]}</span>
            <span className="jp-gpumem-number">
              {bytes(device.shares[part])}
            </span>
          </li>
        ))}
      </ul>
      <History {...props} />
      {device.kind !== 'host' && (
        <p className="jp-gpumem-gauges">
          <span title={trans.__('Utilisation')}>
            {trans.__('load %1', percent(device.utilization))}
          </span>
          <span title={trans.__('Temperature')}>
            {degrees(device.temperature)}
          </span>
          <span title={trans.__('Power')}>{watts(device.power)}</span>
        </p>
      )}
      {pools.map(pool => (
        <p className="jp-gpumem-gauges" key={pool.framework}>
          <span>
            {trans.__('%1 allocated %2', pool.framework, bytes(pool.allocated))}
          </span>
          <span>
            {trans.__(
              'cached %1',
              bytes(
                pool.reserved === null
                  ? null
                  : Math.max(0, pool.reserved - pool.allocated)
              )
            )}
          </span>
          <span>{trans.__('peak %1', bytes(pool.peak))}</span>
        </p>
      ))}
      {device.notes.map(note => (
        <p className="jp-gpumem-note" key={note}>
          {told(note, trans)}
        </p>
      ))}
    </div>
  );
}

// ---------------------------------------------------------------- the chart
const WIDTH = 240;
const HEIGHT = 48;

/** Points on the chart's grid: the highest of those that fall on one column, so that no peak is lost. */
export function columns(
  points: readonly IPoint[],
  value: (point: IPoint) => number | null,
  from: number,
  to: number
): (number | null)[] {
  const found: (number | null)[] = new Array(WIDTH + 1).fill(null);
  for (const point of points) {
    const x = Math.round((WIDTH * (point.time - from)) / (to - from));
    const y = value(point);
    if (x >= 0 && x <= WIDTH && y !== null) {
      found[x] = Math.max(found[x] ?? 0, y);
    }
  }
  return found;
}

/** SVG path through the columns that have a value. A gap of more than `longest` columns is left open. */
export function line(
  values: readonly (number | null)[],
  total: number,
  longest: number
): string {
  let path = '';
  let last = -Infinity;
  values.forEach((value, x) => {
    if (value !== null) {
      const y = HEIGHT - (HEIGHT * Math.min(value, total)) / total;
      const place = `${x} ${y.toFixed(1)}`;
      // a line to its own beginning is a dot
      path += x - last > longest ? `M${place}L${place}` : `L${place}`;
      last = x;
    }
  });
  return path;
}

function History(
  props: IDevicesProps & { device: IDevice }
): JSX.Element | null {
  const { device, points, runs, running, minutes, trans } = props;
  const series = points.get(device.uuid) ?? [];
  const total = device.total;
  if (series.length === 0 || !total) {
    return null;
  }
  const to = series[series.length - 1].time;
  const from = to - 60 * minutes;
  const at = (time: number) => (WIDTH * (time - from)) / (to - from);
  // samples come at most once a minute while a page that cannot be heard waits for its cell
  const longest = Math.max(3, (WIDTH * 15) / (60 * minutes));
  const recent = apart(
    [...runs, ...(running ? [running] : [])].filter(
      run => (run.ended ?? to) >= from
    ),
    run => Math.round(at(run.begun))
  );
  const peak = Math.max(
    0,
    ...series.filter(point => point.time >= from).map(point => point.used ?? 0)
  );
  return (
    <figure className="jp-gpumem-history">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={trans.__(
          'Memory of the last %1: now %2, highest %3',
          age(60 * minutes),
          bytes(device.used),
          bytes(peak)
        )}
      >
        {recent.map(run => {
          const [left, right] = [
            Math.max(0, at(run.begun)),
            at(run.ended ?? to)
          ];
          const name =
            run.count === null
              ? trans.__('cell')
              : trans.__('cell [%1]', run.count);
          const highest = peakOf(run, device);
          return (
            <rect
              key={`${run.begun}`}
              className="jp-gpumem-run"
              data-failed={run.failed || undefined}
              x={left}
              width={Math.max(1, right - left)}
              y={0}
              height={HEIGHT}
            >
              <title>
                {highest ? trans.__('%1: peak %2', name, bytes(highest)) : name}
              </title>
            </rect>
          );
        })}
        <path
          className="jp-gpumem-lineUsed"
          d={line(
            columns(series, p => p.used, from, to),
            total,
            longest
          )}
        />
        <path
          className="jp-gpumem-lineOwn"
          d={line(
            columns(series, p => p.own, from, to),
            total,
            longest
          )}
        />
      </svg>
      <figcaption>
        <span>{trans.__('%1 ago', age(60 * minutes))}</span>
        <LastCell
          run={recent[recent.length - 1]}
          device={device}
          trans={trans}
        />
        <span>{trans.__('now')}</span>
      </figcaption>
    </figure>
  );
}

/** Runs of which no two begin in one column; of those that would, the last. */
export function apart(
  runs: readonly ICellRun[],
  column: (run: ICellRun) => number
): ICellRun[] {
  return [...new Map(runs.map(run => [column(run), run])).values()];
}

function peakOf(run: ICellRun, { alias }: IDevice): number | null {
  return alias !== null && Object.hasOwn(run.peaks, alias)
    ? run.peaks[alias]
    : null;
}

function LastCell(props: {
  run: ICellRun | undefined;
  device: IDevice;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { run, device, trans } = props;
  if (run === undefined || run.count === null) {
    return null;
  }
  if (run.ended === null) {
    return <span>{trans.__('cell [%1] is running', run.count)}</span>;
  }
  const peak = peakOf(run, device);
  return peak ? (
    <span>{trans.__('cell [%1] peak %2', run.count, bytes(peak))}</span>
  ) : null;
}

/** Which notebook and which process holds what. Takes data and callbacks, knows no model. */
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { gpusOf, label, wholes } from './devices';
import { bytes } from './format';
import type { IDevice, IOwner } from './protocol';
import type { ISessionName } from './tracker';

/** Bytes on one device; null where the driver does not say. */
export interface IUse {
  device: IDevice;
  used: number | null;
}

export interface IProcessRow {
  owner: IOwner;
  uses: IUse[];
}

/** A kernel with its children, or a single process. */
export interface IGroup {
  key: string;
  kernel: string | null;
  isOwn: boolean;
  /** The kernel first, where it holds something itself. */
  rows: IProcessRow[];
  used: number;
}

const OF_KERNELS = ['kernel', 'child', 'orphan'];

/** Processes by the kernel that they belong to; ours first, then by size. */
export function groups(
  devices: readonly IDevice[],
  owners: readonly IOwner[]
): IGroup[] {
  const own = owners[0]?.kernel ?? null;
  const byPid = new Map(owners.map(owner => [owner.pid, owner]));
  const rows = new Map<number, IProcessRow>();
  for (const device of wholes(devices)) {
    for (const [pid, used] of device.processes ?? []) {
      const owner = byPid.get(pid);
      if (owner) {
        const row = rows.get(pid) ?? { owner, uses: [] };
        row.uses.push({ device, used });
        rows.set(pid, row);
      }
    }
  }
  const found = new Map<string, IGroup>();
  for (const row of rows.values()) {
    const { pid, kernel, role } = row.owner;
    const isOwn = pid === owners[0]?.pid || (own !== null && kernel === own);
    const ofKernel = kernel !== null && OF_KERNELS.includes(role);
    const key = isOwn ? 'own' : ofKernel ? kernel : `${pid}`;
    const group = found.get(key) ?? {
      key,
      kernel: ofKernel ? kernel : null,
      isOwn,
      rows: [],
      used: 0
    };
    group.rows.push(row);
    group.used += row.uses.reduce((sum, use) => sum + (use.used ?? 0), 0);
    found.set(key, group);
  }
  const ordered = [...found.values()];
  for (const group of ordered) {
    group.rows.sort(
      (a, b) => +(b.owner.role === 'kernel') - +(a.owner.role === 'kernel')
    );
  }
  return ordered.sort((a, b) => +b.isOwn - +a.isOwn || b.used - a.used);
}

export interface IProcessesProps {
  devices: readonly IDevice[];
  owners: readonly IOwner[];
  /** Kernel id → its notebooks and consoles on this server. */
  sessions: ReadonlyMap<string, readonly ISessionName[]>;
  onOpen(session: ISessionName): void;
  onRestart(session: ISessionName): void;
  onShutDown(session: ISessionName): void;
  trans: TranslationBundle;
}

export function Processes(props: IProcessesProps): JSX.Element {
  const { devices, owners, trans } = props;
  const unattributed = wholes(devices).filter(
    device => device.kind !== 'host' && device.shares.unattributed
  );
  const found = groups(devices, owners);
  return (
    <div className="jp-gpumem-processes">
      {found.length === 0 && unattributed.length === 0 && (
        <p className="jp-gpumem-note">{trans.__('No process holds memory.')}</p>
      )}
      <ul aria-label={trans.__('Processes')}>
        {found.map(group => (
          <Group key={group.key} group={group} {...props} />
        ))}
        {unattributed.length > 0 && (
          <li className="jp-gpumem-group">
            <div className="jp-gpumem-row">
              <span className="jp-gpumem-who">{trans.__('unattributed')}</span>
              <Uses
                uses={unattributed.map(device => ({
                  device,
                  used: device.shares.unattributed
                }))}
                {...props}
              />
            </div>
            <p className="jp-gpumem-note">
              {trans.__(
                'Used, but by nobody that can be seen from here: other containers, other users, the driver itself.'
              )}
            </p>
          </li>
        )}
      </ul>
    </div>
  );
}

function Group(props: IProcessesProps & { group: IGroup }): JSX.Element {
  const { group, sessions, trans } = props;
  const [first, ...rest] = group.rows;
  const named = (group.kernel && sessions.get(group.kernel)?.[0]) || null;
  const hasMany = rest.length > 0 || first.owner.role !== 'kernel';
  return (
    <li className="jp-gpumem-group" data-own={group.isOwn || undefined}>
      <div className="jp-gpumem-row">
        <span className="jp-gpumem-who">
          {named ? (
            <button
              className="jp-gpumem-link"
              title={trans.__('Go to %1', named.path)}
              onClick={() => props.onOpen(named)}
            >
              {named.name}
            </button>
          ) : (
            <span>{titleOf(group, first.owner, trans)}</span>
          )}
          {group.isOwn && (
            <span className="jp-gpumem-tag">{trans.__('this notebook')}</span>
          )}
        </span>
        <Uses uses={first.uses} {...props} />
      </div>
      <div className="jp-gpumem-sub">
        <span>{describe(first.owner, trans)}</span>
        {named && (
          <span className="jp-gpumem-buttons">
            <button
              className="jp-gpumem-small"
              onClick={() => props.onRestart(named)}
              aria-label={trans.__('Restart the kernel of %1', named.name)}
            >
              {trans.__('Restart')}
            </button>
            <button
              className="jp-gpumem-small"
              onClick={() => props.onShutDown(named)}
              aria-label={trans.__('Shut down the kernel of %1', named.name)}
            >
              {trans.__('Shut down')}
            </button>
          </span>
        )}
      </div>
      {hasMany && rest.length > 0 && (
        <ul>
          {rest.map(row => (
            <li className="jp-gpumem-row jp-gpumem-child" key={row.owner.pid}>
              <span className="jp-gpumem-who">
                {describe(row.owner, trans)}
              </span>
              <Uses uses={row.uses} {...props} />
            </li>
          ))}
        </ul>
      )}
    </li>
  );
}

function titleOf(
  group: IGroup,
  owner: IOwner,
  trans: TranslationBundle
): string {
  if (owner.notebook) {
    return owner.notebook.split('/').pop() ?? owner.notebook;
  }
  if (group.kernel !== null) {
    return trans.__('kernel %1', group.kernel.slice(0, 8));
  }
  return owner.name ?? trans.__('process %1', owner.pid);
}

/** What is known of a process, in words. */
export function describe(owner: IOwner, trans: TranslationBundle): string {
  const { pid, role, user } = owner;
  const name = owner.name ?? trans.__('process');
  const by = user === null ? '' : ` · ${user}`;
  switch (role) {
    case 'kernel':
      return trans.__('kernel, pid %1', pid) + by;
    case 'child':
      return trans.__('child %1, pid %2', name, pid) + by;
    case 'orphan':
      return trans.__('%1 of a kernel that has ended, pid %2', name, pid) + by;
    case 'ended':
      return trans.__(
        'pid %1 has ended; the driver or its children still hold this',
        pid
      );
    case 'hidden':
      return trans.__('pid %1, of a user whose processes are hidden', pid);
    case 'foreign':
      return trans.__('pid %1, of another container', pid);
    default:
      return trans.__('%1, pid %2', name, pid) + by;
  }
}

function Uses(props: {
  uses: readonly IUse[];
  devices: readonly IDevice[];
  trans: TranslationBundle;
}): JSX.Element {
  const { uses, devices, trans } = props;
  const gpus = gpusOf(devices);
  return (
    <span className="jp-gpumem-uses">
      {uses.map(({ device, used }) => (
        <span key={device.uuid} className="jp-gpumem-number">
          {gpus.length > 1 && (
            <span className="jp-gpumem-on">
              {label(device, devices, trans)}
            </span>
          )}
          {bytes(used)}
        </span>
      ))}
    </span>
  );
}

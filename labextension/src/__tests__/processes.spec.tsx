import { nullTranslator } from '@jupyterlab/translation';
import {
  cleanup,
  fireEvent,
  render,
  screen,
  within
} from '@testing-library/react';
import fc from 'fast-check';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  describe as inWords,
  groups,
  type IProcessesProps,
  Processes
} from '../processes';
import {
  brackets,
  device,
  GIB,
  HOSTILE,
  host,
  KERNEL,
  mig,
  MIB,
  owner,
  session,
  shares,
  stranger
} from './records';

const trans = nullTranslator.load('jupyter_gpumem');
const OTHER = '11111111-2222-3333-4444-555555555555';

afterEach(cleanup);

function show(over: Partial<IProcessesProps> = {}) {
  const props: IProcessesProps = {
    devices: [device()],
    owners: [owner()],
    sessions: new Map(),
    onOpen: vi.fn(),
    onRestart: vi.fn(),
    onShutDown: vi.fn(),
    trans,
    ...over
  };
  const { container } = render(<Processes {...props} />);
  return { props, container };
}

function entries(): HTMLElement[] {
  const list = screen.getByRole('list', { name: /Processes/ });
  return [...list.children] as HTMLElement[];
}

describe('groups', () => {
  it('put ours first, then the largest', () => {
    const found = groups(
      [
        device({
          processes: [
            [1, 5 * GIB],
            [2, 7 * GIB],
            [4242, GIB]
          ]
        })
      ],
      [owner(), stranger({ pid: 1 }), stranger({ pid: 2 })]
    );
    expect(found.map(({ rows }) => rows[0].owner.pid)).toEqual([4242, 2, 1]);
    expect(found.map(({ isOwn }) => isOwn)).toEqual([true, false, false]);
  });

  it('put children under their kernel, whichever the driver names first', () => {
    const found = groups(
      [
        device({
          processes: [
            [51, GIB],
            [50, 2 * GIB],
            [52, null]
          ]
        })
      ],
      [
        owner(),
        owner({ pid: 50, kernel: OTHER }),
        owner({ pid: 51, kernel: OTHER, role: 'child' }),
        owner({ pid: 52, kernel: OTHER, role: 'orphan' })
      ]
    );
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({
      kernel: OTHER,
      isOwn: false,
      used: 3 * GIB
    });
    expect(found[0].rows.map(row => row.owner.pid)).toEqual([50, 51, 52]);
  });

  it('leave what is no part of a kernel by itself, though it bears the id of one', () => {
    const found = groups(
      [
        device({
          processes: [
            [50, GIB],
            [17, 2 * GIB]
          ]
        })
      ],
      [
        owner(),
        owner({ pid: 50, kernel: OTHER }),
        stranger({ role: 'ended', kernel: OTHER })
      ]
    );
    expect(found.map(({ kernel }) => kernel)).toEqual([null, OTHER]);
  });

  it('put what one process holds on two devices in one row', () => {
    const [found] = groups(
      [
        device({ processes: [[4242, GIB]] }),
        device({ uuid: 'GPU-b', index: 1, processes: [[4242, 2 * GIB]] })
      ],
      [owner()]
    );
    expect(found.rows).toHaveLength(1);
    expect(found.rows[0].uses.map(({ used }) => used)).toEqual([GIB, 2 * GIB]);
    expect(found.used).toBe(3 * GIB);
  });

  it('count what is on an instance once, though its GPU lists it too', () => {
    const [found] = groups(
      [device({ processes: [[4242, GIB]] }), mig({ processes: [[4242, GIB]] })],
      [owner()]
    );
    expect(found.used).toBe(GIB);
    expect(found.rows[0].uses.map(use => use.device.uuid)).toEqual(['MIG-b']);
  });

  it('are those of the host only where there is no GPU', () => {
    const memory = host({ processes: [[4242, 5 * MIB]] });
    expect(groups([memory], [owner()])[0].used).toBe(5 * MIB);
    expect(
      groups([device({ processes: [[4242, GIB]] }), memory], [owner()])[0].used
    ).toBe(GIB);
  });

  it('lose no process and no byte', () => {
    const pid = fc.integer({ min: 1, max: 12 });
    const process = fc.tuple(
      pid,
      fc.option(fc.integer({ min: 0, max: 2 ** 40 }))
    );
    const lists = fc.array(
      fc.option(
        fc.uniqueArray(process, { selector: ([one]) => one, maxLength: 8 })
      ),
      { maxLength: 4 }
    );
    const known = fc.uniqueArray(
      fc.record({
        pid,
        role: fc.constantFrom('kernel', 'child', 'orphan', 'ended', 'other'),
        kernel: fc.constantFrom(null, KERNEL, OTHER)
      }),
      { selector: ({ pid }) => pid }
    );
    fc.assert(
      fc.property(lists, known, (processes, some) => {
        const devices = processes.map((list, index) =>
          device({ uuid: `GPU-${index}`, index, processes: list })
        );
        const owners = some.map(one => owner(one));
        const listed = processes
          .flatMap(list => list ?? [])
          .filter(([one]) => owners.some(({ pid }) => pid === one));
        const found = groups(devices, owners);
        const rows = found.flatMap(group => group.rows);
        expect(rows.map(row => row.owner.pid).sort()).toEqual(
          [...new Set(listed.map(([one]) => one))].sort()
        );
        expect(rows.flatMap(row => row.uses)).toHaveLength(listed.length);
        expect(found.reduce((sum, group) => sum + group.used, 0)).toBe(
          listed.reduce((sum, [, used]) => sum + (used ?? 0), 0)
        );
        expect(found.filter(group => group.isOwn).length).toBeLessThan(2);
      })
    );
  });
});

describe('a process', () => {
  it.each([
    [owner(), 'kernel, pid 4242 · ann'],
    [owner({ role: 'child' }), 'child python, pid 4242 · ann'],
    [
      owner({ role: 'orphan' }),
      'python of a kernel that has ended, pid 4242 · ann'
    ],
    [
      stranger({ role: 'ended' }),
      'pid 17 has ended; the driver or its children still hold this'
    ],
    [
      stranger({ role: 'hidden' }),
      'pid 17, of a user whose processes are hidden'
    ],
    [stranger({ role: 'foreign' }), 'pid 17, of another container'],
    [stranger(), 'blender, pid 17 · bob'],
    [stranger({ name: null, user: null }), 'process, pid 17']
  ])('of role $role is described in words', (one, words) => {
    expect(inWords(one, trans)).toBe(words);
  });
});

describe('the list', () => {
  it('shows our notebook first and says that it is ours', () => {
    show({
      devices: [
        device({
          processes: [
            [17, 5 * GIB],
            [4242, 2 * GIB]
          ]
        })
      ],
      owners: [owner(), stranger()]
    });
    const [own, other] = entries();
    expect(within(own).getByText('this notebook')).toBeTruthy();
    expect(own.textContent).toContain('train.ipynb');
    expect(own.textContent).toContain('2.0 GiB');
    expect(within(other).queryByText('this notebook')).toBeNull();
    expect(other.textContent).toContain('blender');
    expect(other.textContent).toContain('5.0 GiB');
    expect(screen.queryByRole('button')).toBeNull();
  });

  it('shows children below their kernel', () => {
    show({
      devices: [
        device({
          processes: [
            [51, GIB],
            [4242, 2 * GIB]
          ]
        })
      ],
      owners: [owner(), owner({ pid: 51, role: 'child', name: 'worker' })]
    });
    const [own] = entries();
    const children = within(own).getAllByRole('listitem');
    expect(children.map(child => child.textContent)).toEqual([
      'child worker, pid 51 · ann1.0 GiB'
    ]);
  });

  it('says N/A where the driver does not say how much', () => {
    show({ devices: [device({ processes: [[4242, null]] })] });
    expect(entries()[0].textContent).toContain('N/A');
    expect(entries()[0].textContent).not.toContain('0 B');
  });

  it('says on which GPU something lies if there are several', () => {
    show({
      devices: [
        device({ processes: [[4242, GIB]] }),
        device({ uuid: 'GPU-b', index: 1, processes: [[4242, 2 * GIB]] })
      ]
    });
    expect(entries()[0].textContent).toContain('GPU 01.0 GiBGPU 12.0 GiB');
    cleanup();
    show();
    expect(entries()[0].textContent).not.toContain('GPU');
  });

  it('calls a kernel of which only the id is known by its beginning', () => {
    show({
      devices: [device({ processes: [[50, GIB]] })],
      owners: [owner(), owner({ pid: 50, kernel: OTHER, notebook: null })]
    });
    expect(entries()[0].textContent).toContain('kernel 11111111');
  });

  it('calls a process without a name by its number', () => {
    show({
      devices: [device({ processes: [[17, GIB]] })],
      owners: [owner(), stranger({ name: null })]
    });
    expect(screen.getByText('process 17')).toBeTruthy();
  });

  it('goes to a notebook, restarts its kernel, and shuts it down', () => {
    const mine = session({ name: 'renamed.ipynb' });
    const { props } = show({ sessions: new Map([[KERNEL, [mine]]]) });
    const press = (name: string) =>
      fireEvent.click(screen.getByRole('button', { name }));
    press('renamed.ipynb');
    expect(props.onOpen).toHaveBeenCalledExactlyOnceWith(mine);
    expect(props.onRestart).not.toHaveBeenCalled();
    press('Restart the kernel of renamed.ipynb');
    expect(props.onRestart).toHaveBeenCalledExactlyOnceWith(mine);
    expect(props.onShutDown).not.toHaveBeenCalled();
    press('Shut down the kernel of renamed.ipynb');
    expect(props.onShutDown).toHaveBeenCalledExactlyOnceWith(mine);
  });

  it('offers no button for what is no kernel, though it bears the id of one', () => {
    show({
      devices: [device({ processes: [[17, GIB]] })],
      owners: [owner(), stranger({ role: 'ended', kernel: OTHER })],
      sessions: new Map([[OTHER, [session()]]])
    });
    expect(screen.queryByRole('button')).toBeNull();
  });

  it('shows what nobody here can be seen to use', () => {
    show({
      devices: [device({ shares: shares({ unattributed: 3 * GIB }) })]
    });
    const last = entries()[entries().length - 1];
    expect(last.textContent).toContain('unattributed3.0 GiB');
    expect(last.textContent).toContain('other containers');
    cleanup();
    show();
    expect(screen.queryByText('unattributed')).toBeNull();
  });

  it('says so if nobody holds anything', () => {
    show({ devices: [device({ processes: [] })] });
    expect(screen.getByText('No process holds memory.')).toBeTruthy();
  });

  it.each(HOSTILE)('shows number %# of the hostile names as text', name => {
    const { container } = show({
      devices: [
        device({
          processes: [
            [4242, GIB],
            [17, GIB]
          ]
        })
      ],
      owners: [owner(), stranger({ name, user: name })],
      sessions: new Map([[KERNEL, [session({ name, path: name })]]])
    });
    expect(screen.getByText(name, { selector: 'button' })).toBeTruthy();
    expect(container.textContent).toContain(`${name}, pid 17 · ${name}`);
    expect(container.querySelector('img, script')).toBeNull();
  });

  it('is translated', () => {
    show({
      devices: [
        device({
          processes: [
            [4242, GIB],
            [17, GIB]
          ],
          shares: shares({ unattributed: GIB })
        })
      ],
      owners: [owner(), stranger({ role: 'foreign' })],
      sessions: new Map([[KERNEL, [session()]]]),
      trans: brackets
    });
    for (const text of [
      '⟦this notebook⟧',
      '⟦unattributed⟧',
      '⟦Restart⟧',
      '⟦Shut down⟧',
      '⟦pid 17, of another container⟧'
    ]) {
      expect(screen.getByText(text)).toBeTruthy();
    }
  });
});

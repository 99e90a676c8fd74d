/** Records as the kernel sends them, for the specs: whole ones, with what a spec cares for put in. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { INamesView } from '../notebook';
import type {
  IAction,
  IAllocator,
  ICellRun,
  IDevice,
  IHolding,
  INames,
  INameUse,
  IOwner,
  IParking,
  IPlan,
  IReport,
  ISample,
  IShares,
  IVerdict
} from '../protocol';
import type { ISessionName } from '../tracker';

export const KIB = 1024;
export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;
export const NOW = 1764600000;

/** Names that somebody may choose to do harm, or by accident. */
export const HOSTILE = [
  '<img src=x onerror=alert(1)>',
  '<script>alert(1)</script>',
  '\u202Etxt.exe',
  'n'.repeat(4096)
];

export function shares(over: Partial<IShares> = {}): IShares {
  return {
    own: 2 * GIB,
    notebooks: 0,
    others: 0,
    unattributed: 0,
    free: 78 * GIB,
    ...over
  };
}

export function device(over: Partial<IDevice> = {}): IDevice {
  return {
    uuid: 'GPU-a',
    kind: 'gpu',
    index: 0,
    name: 'NVIDIA A100',
    total: 80 * GIB,
    used: 2 * GIB,
    free: 78 * GIB,
    reserved: 0,
    utilization: 35,
    temperature: 41,
    power: 72000,
    processes: [[4242, 2 * GIB]],
    parent: null,
    alias: 'cuda:0',
    notes: [],
    shares: shares(),
    ...over
  };
}

export function host(over: Partial<IDevice> = {}): IDevice {
  return device({
    uuid: 'cpu',
    kind: 'host',
    index: null,
    name: 'Host memory',
    total: 64 * GIB,
    used: 16 * GIB,
    free: 48 * GIB,
    utilization: null,
    temperature: null,
    power: null,
    alias: 'cpu',
    ...over
  });
}

export function mig(over: Partial<IDevice> = {}): IDevice {
  return device({
    uuid: 'MIG-b',
    kind: 'mig',
    index: 1,
    parent: 'GPU-a',
    ...over
  });
}

export const KERNEL = '986eed70-e869-4289-b329-1b6f2f8c5a47';

export function owner(over: Partial<IOwner> = {}): IOwner {
  return {
    pid: 4242,
    name: 'python',
    user: 'ann',
    role: 'kernel',
    kernel: KERNEL,
    notebook: '/home/ann/train.ipynb',
    ...over
  };
}

/** A process that belongs to no kernel. */
export function stranger(over: Partial<IOwner> = {}): IOwner {
  return owner({
    pid: 17,
    name: 'blender',
    user: 'bob',
    role: 'other',
    kernel: null,
    notebook: null,
    ...over
  });
}

export function allocator(over: Partial<IAllocator> = {}): IAllocator {
  return {
    framework: 'torch',
    device: 'cuda:0',
    allocated: 1 * GIB,
    reserved: 3 * GIB,
    peak: 2.5 * GIB,
    ...over
  };
}

export function run(over: Partial<ICellRun> = {}): ICellRun {
  return {
    count: 7,
    cell: 'c0ffee',
    begun: NOW - 60,
    ended: NOW - 30,
    failed: false,
    peaks: {},
    stayed: {},
    ...over
  };
}

export function sample(over: Partial<ISample> = {}): ISample {
  return {
    kind: 'sample',
    interval: 1000,
    time: NOW,
    devices: [device()],
    owners: [owner()],
    allocators: [],
    running: null,
    problem: null,
    ...over
  };
}

export function nameUse(over: Partial<INameUse> = {}): INameUse {
  return {
    name: 'model',
    kind: 'Linear',
    nbytes: 3 * MIB,
    storages: 2,
    shape: null,
    dtype: null,
    devices: ['cuda:0'],
    ...over
  };
}

/** As many names as asked for, the first one the largest: `x0`, `x1` … */
export function many(count: number): INameUse[] {
  return Array.from({ length: count }, (_, index) =>
    nameUse({ name: `x${index}`, nbytes: (count - index) * KIB })
  );
}

export function holding(over: Partial<IHolding> = {}): IHolding {
  return {
    framework: 'torch',
    device: 'cuda:0',
    storage: 1,
    nbytes: 4 * MIB,
    tensors: [
      { kind: 'Tensor', shape: [2, 3], dtype: 'float32', nbytes: 4 * MIB }
    ],
    holder: { path: 'Out[3]', cause: 'output', name: null, frees: null },
    unseen: null,
    ...over
  };
}

/** What is held for a cause, on a path. */
export function held(
  cause: string,
  path: string,
  over: Partial<IHolding> = {}
): IHolding {
  return holding({ holder: { path, cause, name: null, frees: null }, ...over });
}

export function names(over: Partial<INames> = {}): INames {
  return {
    watched: ['cuda:0'],
    allocators: [allocator()],
    names: [nameUse()],
    others: [],
    partial: false,
    ...over
  };
}

export function namesView(
  over: Partial<INames> = {},
  view: Partial<INamesView> = {}
): INamesView {
  return {
    names: names(over),
    parked: [],
    leftOut: 0,
    took: 12,
    isOld: false,
    ...view
  };
}

export function action(over: Partial<IAction> = {}): IAction {
  return {
    step: 'delete name',
    target: 'model',
    nbytes: 3 * MIB,
    note: '',
    ...over
  };
}

export function plan(over: Partial<IPlan> = {}): IPlan {
  return {
    actions: [action()],
    watched: ['cuda:0'],
    held: [],
    notes: [],
    ...over
  };
}

export function report(over: Partial<IReport> = {}): IReport {
  return {
    plan: plan(),
    done: [action()],
    freed: 3 * MIB,
    before: [],
    after: [],
    left: [],
    faults: [],
    ...over
  };
}

/** A plan for a move to host memory. */
export function parking(over: Partial<IParking> = {}): IParking {
  return {
    direction: 'park',
    moved: [
      {
        name: 'model',
        device: 'cuda:0',
        nbytes: 3 * MIB,
        storages: 2,
        tensors: 2
      }
    ],
    done: false,
    before: [],
    after: [],
    obstacles: [],
    notes: [],
    ...over
  };
}

export function verdict(over: Partial<IVerdict> = {}): IVerdict {
  return {
    id: 1,
    kind: 'out of memory',
    asked: 'out of memory on cuda:0: 2.0 GiB asked; cell [3]',
    cause: '1.0 GiB dangles',
    cure: 'free what dangles',
    code: '%gpufree',
    dangling: true,
    given_back: GIB,
    ...over
  };
}

export function session(over: Partial<ISessionName> = {}): ISessionName {
  return {
    session: 's1',
    name: 'train.ipynb',
    path: 'work/train.ipynb',
    kind: 'notebook',
    ...over
  };
}

/** A language in which every sentence stands in brackets, so that one that is not translated is seen. */
export const brackets = {
  __: (text: string, ...args: unknown[]) =>
    `⟦${text.replace(/%(\d+)/g, (_, n) => String(args[Number(n) - 1]))}⟧`
} as unknown as TranslationBundle;

/**
 * The messages between page and kernel, as types. What comes in passes `guards.ts` first.
 *
 * The field names are those of the kernel's records (`jupyter_gpumem/model`, `faces/wire.py`); `tests/protocol` has
 * examples that both sides read. Sizes are bytes, times are seconds since the epoch, null means "not available here".
 */

export const VERSION = 1;
/** Id and target of the comm, and the key of our part of a message on the control channel. */
export const COMM = 'jupyter_gpumem';

export interface IShares {
  own: number | null;
  notebooks: number | null;
  others: number | null;
  unattributed: number | null;
  free: number | null;
}

export interface IDevice {
  uuid: string;
  kind: string;
  index: number | null;
  name: string;
  total: number | null;
  used: number | null;
  free: number | null;
  reserved: number | null;
  /** Per cent. */
  utilization: number | null;
  /** Degrees Celsius. */
  temperature: number | null;
  /** Milliwatts. */
  power: number | null;
  /** Process id and bytes; null where the list cannot be read. */
  processes: [number, number | null][] | null;
  parent: string | null;
  alias: string | null;
  notes: string[];
  shares: IShares;
}

export interface IOwner {
  pid: number;
  name: string | null;
  user: string | null;
  role: string;
  kernel: string | null;
  notebook: string | null;
}

export interface IAllocator {
  framework: string;
  device: string;
  allocated: number;
  reserved: number | null;
  peak: number | null;
}

export interface ICellRun {
  count: number | null;
  cell: string | null;
  begun: number;
  ended: number | null;
  failed: boolean;
  peaks: Record<string, number>;
  stayed: Record<string, number>;
}

export interface ISample {
  kind: 'sample';
  /** Milliseconds to the next one; 0 for a single sample. */
  interval: number;
  time: number;
  devices: IDevice[];
  owners: IOwner[];
  allocators: IAllocator[];
  running: ICellRun | null;
  problem: string | null;
}

export interface INameUse {
  name: string;
  kind: string;
  nbytes: number;
  storages: number;
  shape: number[] | null;
  dtype: string | null;
  devices: string[];
}

export interface ITensor {
  kind: string;
  shape: number[];
  dtype: string;
  nbytes: number;
}

export interface IHolder {
  path: string;
  cause: string;
  name: string | null;
  /** Whether letting go of this one alone would free the memory; null where that was not asked. */
  frees: boolean | null;
}

export interface IHolding {
  framework: string;
  device: string;
  storage: number;
  nbytes: number;
  tensors: ITensor[];
  holder: IHolder;
  unseen: number | null;
}

export interface INames {
  watched: string[];
  allocators: IAllocator[];
  names: INameUse[];
  others: IHolding[];
  partial: boolean;
}

export interface IAction {
  step: string;
  target: string;
  nbytes: number | null;
  note: string;
}

export interface IPlan {
  actions: IAction[];
  watched: string[];
  held: IHolding[];
  notes: string[];
}

export interface IOffer {
  token: string;
  plan: IPlan;
}

export interface IReport {
  plan: IPlan;
  done: IAction[];
  freed: number;
  before: IAllocator[];
  after: IAllocator[];
  left: IHolding[];
  faults: string[];
}

/** What one name has on one device, to be moved or moved. */
export interface IMoved {
  name: string;
  device: string;
  nbytes: number;
  storages: number;
  tensors: number;
}

/** A move to host memory, or back to the device; as a whole or not at all. */
export interface IParking {
  direction: string;
  moved: IMoved[];
  done: boolean;
  before: IAllocator[];
  after: IAllocator[];
  /** Why it cannot be done, a sentence each. */
  obstacles: string[];
  notes: string[];
}

export interface IMoveOffer {
  token: string;
  parking: IParking;
}

/** What lies in host memory, and the device that it is to go back to. */
export interface IParkedName {
  name: string;
  device: string;
  nbytes: number;
}

/** One part of a sum; only what lies outside the allocator is negative. */
export interface IEntry {
  kind: string;
  nbytes: number | null;
  note: string;
}

export interface ISum {
  total: number | null;
  entries: IEntry[];
}

export interface IAccount {
  framework: string;
  device: string;
  allocated: ISum;
  reserved: ISum;
  used: ISum;
  notes: string[];
  partial: boolean;
}

/** Why a cell failed for want of memory, or of a device, in the kernel's words. */
export interface IVerdict {
  /** Grows with each verdict of one process. */
  id: number;
  kind: string;
  asked: string;
  /** Empty for a fault of the device. */
  cause: string;
  cure: string;
  /** What may be typed for it; may be empty. */
  code: string;
  /** A clean-up would free memory that no name holds. */
  dangling: boolean;
  /** Bytes that only the error held, and that are back. */
  given_back: number;
}

/** What each verb answers. */
export interface IResults {
  watch: {
    interval: number;
    lease: number;
    host: string;
    remote: boolean;
    verdict: IVerdict | null;
  };
  unwatch: { watching: number };
  sample: ISample;
  cancel: { cancelled: boolean };
  dismiss: { dismissed: boolean };
  names: {
    names: INames;
    parked: IParkedName[];
    left_out: number;
    took: number;
  };
  why: {
    name: string;
    nbytes: number;
    holders: IHolder[];
    notes: string[];
    /** Paths: the smallest set of references to let go of, where one alone would not free the memory. */
    cuts: string[];
  };
  plan: IOffer;
  free: { report: IReport } | { changed: IOffer };
  park: IMoveOffer;
  restore: IMoveOffer;
  move: { done: IParking } | { changed: IMoveOffer };
  account: { accounts: IAccount[] };
}

/** What each verb needs. */
export interface IArguments {
  watch: { interval: number; lease: number };
  unwatch: Record<string, never>;
  sample: Record<string, never>;
  cancel: { target: string };
  dismiss: { verdict: number };
  names: Record<string, never>;
  why: { name: string } | { device: string; storage: number };
  plan: { names: string[]; dangling: boolean; empty: boolean };
  free: { token: string };
  park: { names: string[] };
  restore: { names: string[] };
  move: { token: string };
  account: Record<string, never>;
}

export type Verb = keyof IResults;

export interface IError {
  code: string;
  text: string;
}

export interface IReply {
  kind: 'reply';
  id: string;
  verb: string | null;
  ok: boolean;
  result?: unknown;
  error?: IError;
}

export type Message =
  | ISample
  | IReply
  | { kind: 'cell'; run: ICellRun }
  | { kind: 'verdict'; verdict: IVerdict | null }
  | { kind: 'fault'; text: string }
  | { kind: 'bye' };

/** A message with the process that sent it and its place in the sequence (null for what is sent to this page alone). */
export interface IReceived {
  boot: string;
  n: number | null;
  message: Message;
}

/** A request as it is sent. */
export function request<V extends Verb>(
  id: string,
  page: string,
  verb: V,
  args: IArguments[V]
): { v: number; id: string; page: string; verb: V; args: IArguments[V] } {
  return { v: VERSION, id, page, verb, args };
}

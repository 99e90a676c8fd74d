/** What comes over the wire is not trusted: guards that let only our messages through, of any depth and size. */
import {
  VERSION,
  type IAccount,
  type IAction,
  type IAllocator,
  type ICellRun,
  type IDevice,
  type IEntry,
  type IError,
  type IHolder,
  type IHolding,
  type IMoved,
  type IMoveOffer,
  type INameUse,
  type INames,
  type IOffer,
  type IOwner,
  type IParkedName,
  type IParking,
  type IPlan,
  type IReceived,
  type IReply,
  type IReport,
  type IResults,
  type ISample,
  type IShares,
  type ISum,
  type ITensor,
  type IVerdict,
  type Message,
  type Verb
} from './protocol';

const LONGEST_TEXT = 4096;
const MOST_ROWS = 20_000;
const MOST_DEVICES = 1024;

export type Guard<T> = (value: unknown) => value is T;

const isText: Guard<string> = (v): v is string =>
  typeof v === 'string' && v.length <= LONGEST_TEXT;
const isInteger: Guard<number> = (v): v is number => Number.isSafeInteger(v);
const isSize: Guard<number> = (v): v is number => isInteger(v) && v >= 0;
const isTime: Guard<number> = (v): v is number =>
  typeof v === 'number' && Number.isFinite(v) && v >= 0;
const isFlag: Guard<boolean> = (v): v is boolean => typeof v === 'boolean';

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function orNull<T>(guard: Guard<T>): Guard<T | null> {
  return (v): v is T | null => v === null || guard(v);
}

function list<T>(guard: Guard<T>, most = MOST_ROWS): Guard<T[]> {
  return (v): v is T[] =>
    Array.isArray(v) && v.length <= most && v.every(guard);
}

function table<T>(guard: Guard<T>): Guard<Record<string, T>> {
  return (v): v is Record<string, T> =>
    isObject(v) && list(guard, MOST_DEVICES)(Object.values(v));
}

/** Every field of `T` has a guard, else this does not compile. */
function record<T>(fields: { [K in keyof T]-?: Guard<T[K]> }): Guard<T> {
  const guards = Object.entries(fields) as [string, Guard<unknown>][];
  return (v): v is T =>
    isObject(v) && guards.every(([name, guard]) => guard(v[name]));
}

function only<T extends string>(word: T): Guard<T> {
  return (v): v is T => v === word;
}

const isShares = record<IShares>({
  own: orNull(isSize),
  notebooks: orNull(isSize),
  others: orNull(isSize),
  unattributed: orNull(isSize),
  free: orNull(isSize)
});

const isProcess = (v: unknown): v is [number, number | null] =>
  Array.isArray(v) && v.length === 2 && isSize(v[0]) && orNull(isSize)(v[1]);

const isDevice = record<IDevice>({
  uuid: isText,
  kind: isText,
  index: orNull(isSize),
  name: isText,
  total: orNull(isSize),
  used: orNull(isSize),
  free: orNull(isSize),
  reserved: orNull(isSize),
  utilization: orNull(isInteger),
  temperature: orNull(isInteger),
  power: orNull(isInteger),
  processes: orNull(list<[number, number | null]>(isProcess)),
  parent: orNull(isText),
  alias: orNull(isText),
  notes: list(isText, 64),
  shares: isShares
});

const isOwner = record<IOwner>({
  pid: isSize,
  name: orNull(isText),
  user: orNull(isText),
  role: isText,
  kernel: orNull(isText),
  notebook: orNull(isText)
});

const isAllocator = record<IAllocator>({
  framework: isText,
  device: isText,
  allocated: isSize,
  reserved: orNull(isSize),
  peak: orNull(isSize)
});

const isRun = record<ICellRun>({
  count: orNull(isInteger),
  cell: orNull(isText),
  begun: isTime,
  ended: orNull(isTime),
  failed: isFlag,
  peaks: table(isSize),
  stayed: table(isInteger)
});

const isSample = record<ISample>({
  kind: only('sample'),
  interval: isSize,
  time: isTime,
  devices: list(isDevice, MOST_DEVICES),
  owners: list(isOwner),
  allocators: list(isAllocator, MOST_DEVICES),
  running: orNull(isRun),
  problem: orNull(isText)
});

const isShape = list(isInteger, 64);

const isNameUse = record<INameUse>({
  name: isText,
  kind: isText,
  nbytes: isSize,
  storages: isSize,
  shape: orNull(isShape),
  dtype: orNull(isText),
  devices: list(isText, MOST_DEVICES)
});

const isHolder = record<IHolder>({
  path: isText,
  cause: isText,
  name: orNull(isText),
  frees: orNull(isFlag)
});

const isHolding = record<IHolding>({
  framework: isText,
  device: isText,
  storage: isSize,
  nbytes: isSize,
  tensors: list(
    record<ITensor>({
      kind: isText,
      shape: isShape,
      dtype: isText,
      nbytes: isSize
    })
  ),
  holder: isHolder,
  unseen: orNull(isInteger)
});

const isAction = record<IAction>({
  step: isText,
  target: isText,
  nbytes: orNull(isSize),
  note: isText
});

const isPlan = record<IPlan>({
  actions: list(isAction),
  watched: list(isText, MOST_DEVICES),
  held: list(isHolding),
  notes: list(isText)
});

const isOffer = record<IOffer>({ token: isText, plan: isPlan });

const isReport = record<IReport>({
  plan: isPlan,
  done: list(isAction),
  freed: isSize,
  before: list(isAllocator, MOST_DEVICES),
  after: list(isAllocator, MOST_DEVICES),
  left: list(isHolding),
  faults: list(isText)
});

const isParking = record<IParking>({
  direction: isText,
  moved: list(
    record<IMoved>({
      name: isText,
      device: isText,
      nbytes: isSize,
      storages: isSize,
      tensors: isSize
    })
  ),
  done: isFlag,
  before: list(isAllocator, MOST_DEVICES),
  after: list(isAllocator, MOST_DEVICES),
  obstacles: list(isText),
  notes: list(isText)
});

const isMoveOffer = record<IMoveOffer>({ token: isText, parking: isParking });

const isSum = record<ISum>({
  total: orNull(isSize),
  entries: list(
    record<IEntry>({ kind: isText, nbytes: orNull(isInteger), note: isText }),
    64
  )
});

const isAccount = record<IAccount>({
  framework: isText,
  device: isText,
  allocated: isSum,
  reserved: isSum,
  used: isSum,
  notes: list(isText),
  partial: isFlag
});

const isVerdict = record<IVerdict>({
  id: isSize,
  kind: isText,
  asked: isText,
  cause: isText,
  cure: isText,
  code: isText,
  dangling: isFlag,
  given_back: isSize
});

const RESULTS: { [V in Verb]: Guard<IResults[V]> } = {
  watch: record<IResults['watch']>({
    interval: isSize,
    lease: isSize,
    host: isText,
    remote: isFlag,
    verdict: orNull(isVerdict)
  }),
  unwatch: record<IResults['unwatch']>({ watching: isSize }),
  sample: isSample,
  cancel: record<IResults['cancel']>({ cancelled: isFlag }),
  dismiss: record<IResults['dismiss']>({ dismissed: isFlag }),
  names: record<IResults['names']>({
    names: record<INames>({
      watched: list(isText, MOST_DEVICES),
      allocators: list(isAllocator, MOST_DEVICES),
      names: list(isNameUse),
      others: list(isHolding),
      partial: isFlag
    }),
    parked: list(
      record<IParkedName>({ name: isText, device: isText, nbytes: isSize })
    ),
    left_out: isSize,
    took: isSize
  }),
  why: record<IResults['why']>({
    name: isText,
    nbytes: isSize,
    holders: list(isHolder),
    notes: list(isText),
    cuts: list(isText)
  }),
  plan: isOffer,
  free: (v): v is IResults['free'] =>
    isObject(v) && (isReport(v.report) || isOffer(v.changed)),
  park: isMoveOffer,
  restore: isMoveOffer,
  move: (v): v is IResults['move'] =>
    isObject(v) && (isParking(v.done) || isMoveOffer(v.changed)),
  account: record<IResults['account']>({
    accounts: list(isAccount, MOST_DEVICES)
  })
};

const isError = record<IError>({ code: isText, text: isText });

const isReply: Guard<IReply> = (v): v is IReply =>
  isObject(v) &&
  v.kind === 'reply' &&
  isText(v.id) &&
  orNull(isText)(v.verb) &&
  (v.ok === true ? v.error === undefined : v.ok === false && isError(v.error));

const MESSAGES: {
  [K in Message['kind']]: Guard<Extract<Message, { kind: K }>>;
} = {
  sample: isSample,
  reply: isReply,
  cell: record<{ kind: 'cell'; run: ICellRun }>({
    kind: only('cell'),
    run: isRun
  }),
  verdict: record<{ kind: 'verdict'; verdict: IVerdict | null }>({
    kind: only('verdict'),
    verdict: orNull(isVerdict)
  }),
  fault: record<{ kind: 'fault'; text: string }>({
    kind: only('fault'),
    text: isText
  }),
  bye: record<{ kind: 'bye' }>({ kind: only('bye') })
};

/** What a kernel has sent, or null if it is none of our messages. Never throws. */
export function read(data: unknown): IReceived | null {
  if (!isObject(data) || data.v !== VERSION) {
    return null;
  }
  const { boot, n, kind } = data;
  if (
    !isText(boot) ||
    !orNull(isSize)(n) ||
    !isText(kind) ||
    !Object.hasOwn(MESSAGES, kind)
  ) {
    return null;
  }
  const guard = MESSAGES[kind as Message['kind']] as Guard<Message>;
  return guard(data) ? { boot, n, message: data } : null;
}

/** The result of a reply if it is what the verb promises, else null. Never throws. */
export function resultOf<V extends Verb>(
  verb: V,
  reply: IReply
): IResults[V] | null {
  return reply.verb === verb && RESULTS[verb](reply.result)
    ? (reply.result as IResults[V])
    : null;
}

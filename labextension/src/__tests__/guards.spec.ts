import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { read, resultOf } from '../guards';
import type { IReply, Message, Verb } from '../protocol';
import { sample } from './records';

interface ICase {
  what: string;
  valid: boolean;
  message: unknown;
}

/** The folder that the kernel's tests read too. */
const FOLDER = join(__dirname, '../../../tests/protocol');
const { messages } = JSON.parse(
  readFileSync(join(FOLDER, 'records.json'), 'utf8')
) as { messages: ICase[] };
const requests = (
  JSON.parse(readFileSync(join(FOLDER, 'requests.json'), 'utf8')) as {
    messages: ICase[];
  }
).messages;

/** Read as the page reads: the message, and for a reply also its result. */
function isAccepted(data: unknown): boolean {
  const received = read(data);
  if (received === null || received.message.kind !== 'reply') {
    return received !== null;
  }
  const reply = received.message;
  return !reply.ok || resultOf(reply.verb as Verb, reply) !== null;
}

/** What the page goes on with: of a reply only the result, once it has been read for the verb that was sent. */
function used(message: Message): unknown {
  if (message.kind !== 'reply') {
    return message;
  }
  const { ok, verb } = message;
  return ok && VERBS.includes(verb as string)
    ? resultOf(verb as Verb, message)
    : null;
}

/** `resultOf` is only asked for verbs that were sent. */
const VERBS = [
  'watch',
  'unwatch',
  'sample',
  'cancel',
  'names',
  'why',
  'plan',
  'free',
  'park',
  'restore',
  'move',
  'account',
  'dismiss'
];

describe('the protocol folder', () => {
  it.each(messages.map(one => [one.what, one] as const))('%s', (_, one) => {
    const { verb, kind } = (one.message ?? {}) as Record<string, unknown>;
    if (kind === 'reply' && !VERBS.includes(verb as string) && verb !== null) {
      return expect(one.valid).toBe(false);
    }
    return expect(isAccepted(one.message)).toBe(one.valid);
  });

  it('has requests that are no messages to a page', () => {
    expect(requests.length).toBeGreaterThan(40);
    for (const { message } of requests) {
      expect(read(message)).toBeNull();
    }
  });
});

const valid = messages.filter(one => one.valid).map(one => one.message);

/** Every place in a value, as a path. */
function places(value: unknown, path: (string | number)[] = []): unknown[][] {
  const inner =
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([key, item]) =>
          places(item, [...path, key])
        )
      : [];
  return [path, ...inner];
}

function replaced(value: unknown, path: unknown[], by: unknown): unknown {
  if (path.length === 0) {
    return by;
  }
  const copy = structuredClone(value) as Record<string, unknown>;
  let inner = copy;
  for (const key of path.slice(0, -1)) {
    inner = inner[key as string] as Record<string, unknown>;
  }
  inner[path[path.length - 1] as string] = by;
  return copy;
}

describe('read', () => {
  it('never throws, and lets no stranger in', () => {
    fc.assert(
      fc.property(fc.anything({ withBigInt: true, maxDepth: 4 }), data => {
        expect(read(data)).toBeNull();
      }),
      { numRuns: 500 }
    );
  });

  it('never throws at a message of ours in which one place is wrong', () => {
    const place = fc
      .constantFrom(...valid)
      .chain(message =>
        fc.constantFrom(...places(message)).map(path => ({ message, path }))
      );
    const bad = fc.oneof(
      fc.anything({ maxDepth: 2 }),
      fc.constantFrom(NaN, Infinity, -1, 2 ** 53, 1e308, '', '__proto__')
    );
    fc.assert(
      fc.property(place, bad, ({ message, path }, by) => {
        const received = read(replaced(message, path, by));
        if (received !== null) {
          expect(JSON.stringify(used(received.message))).not.toContain(
            '"used":-'
          );
          expect(Number.isSafeInteger(received.n ?? 0)).toBe(true);
        }
      }),
      { numRuns: 1000 }
    );
  });

  it('lets no number in that a page cannot count with', () => {
    for (const bad of [NaN, Infinity, -1, 1.5, 2 ** 53, '1', true]) {
      const one = sample();
      (one.devices[0] as unknown as Record<string, unknown>).used = bad;
      expect(read({ v: 1, boot: 'b', n: 1, ...one })).toBeNull();
    }
  });

  it('survives a message of any depth', () => {
    let deep: unknown = null;
    for (let level = 0; level < 100_000; level += 1) {
      deep = [deep];
    }
    expect(
      read({ v: 1, boot: 'b', n: 1, kind: 'fault', text: deep })
    ).toBeNull();
  });

  it('survives a list without end', () => {
    const one = sample({ owners: new Array(30_000).fill(sample().owners[0]) });
    expect(read({ v: 1, boot: 'b', n: 1, ...one })).toBeNull();
  });

  it('takes no fields from a prototype', () => {
    const inherited = Object.create({ v: 1, boot: 'b', n: 1, kind: 'bye' });
    expect(
      read(JSON.parse(JSON.stringify(inherited))) // the wire keeps own fields only
    ).toBeNull();
  });
});

describe('resultOf', () => {
  it('is null when the kernel answers another verb', () => {
    const reply = {
      kind: 'reply',
      id: 'r1',
      verb: 'cancel',
      ok: true,
      result: { cancelled: true }
    } as IReply;
    expect(resultOf('cancel', reply)).toEqual({ cancelled: true });
    expect(resultOf('unwatch', reply)).toBeNull();
  });
});

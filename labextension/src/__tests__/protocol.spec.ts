import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { request } from '../protocol';

const { messages } = JSON.parse(
  readFileSync(join(__dirname, '../../../tests/protocol/requests.json'), 'utf8')
) as {
  messages: { valid: boolean; message: Record<string, unknown> }[];
};
const valid = messages.filter(one => one.valid).map(one => one.message);

describe('request', () => {
  it.each([
    ['watch', { interval: 1000, lease: 30 }],
    ['cancel', { target: 'r0' }],
    ['why', { name: 'x' }],
    ['free', { token: 't1' }],
    ['park', { names: ['x', 'y'] }],
    ['restore', { names: ['x'] }],
    ['move', { token: 't3' }],
    ['account', {}],
    ['dismiss', { verdict: 3 }]
  ] as const)('%s is what the kernel’s tests accept', (verb, args) => {
    const made = request('r1', 'p1', verb, args as never);
    expect(valid).toContainEqual(JSON.parse(JSON.stringify(made)));
  });
});

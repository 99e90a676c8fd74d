import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

const SOURCES = join(__dirname, '..');
const CATALOGUE = JSON.parse(
  readFileSync(
    join(
      __dirname,
      '../../../jupyter_gpumem/locale/zh_CN/LC_MESSAGES/jupyter_gpumem.json'
    ),
    'utf8'
  )
) as Record<string, string[]>;

/** The literals that a file gives to `trans.__`, with the number of values that go into each. */
function translated(file: string): [string, number][] {
  const text = readFileSync(join(SOURCES, file), 'utf8');
  const tree = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const found: [string, number][] = [];
  const visit = (node: ts.Node): void => {
    if (
      ts.isCallExpression(node) &&
      ts.isPropertyAccessExpression(node.expression) &&
      node.expression.name.text === '__'
    ) {
      const [first, ...rest] = node.arguments;
      if (ts.isStringLiteralLike(first)) {
        found.push([first.text, rest.length]);
      }
    }
    node.forEachChild(visit);
  };
  visit(tree);
  return found;
}

const all = readdirSync(SOURCES)
  .filter(file => /\.tsx?$/.test(file))
  .flatMap(translated);

describe('the zh-CN catalogue', () => {
  it('is read from real sources', () => {
    expect(all.length).toBeGreaterThan(100);
  });

  it('has every sentence of the page', () => {
    const missing = all.filter(([text]) => !(text in CATALOGUE));
    expect(missing).toEqual([]);
  });

  it('is asked with as many values as the sentence has places', () => {
    const wrong = all.filter(
      ([text, values]) => new Set(text.match(/%\d/g)).size !== values
    );
    expect(wrong).toEqual([]);
  });
});

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { filesOf } from '../setup/guide-files.ts';

const GUIDE = 'testing-your-integration';

/** The line of penstock dev that the guide shows. */
const shown: Record<string, unknown> = JSON.parse(
  /^```json\n(.*)\n```$/m.exec(readFileSync(path.join(packageRoot, 'docs', `${GUIDE}.md`), 'utf8'))![1]!,
);

/** Members that the program prints, from its source. */
const printed = [
  ...readFileSync(path.join(packageRoot, 'src/dev.ts'), 'utf8')
    .split('const facts = {')[1]!
    .split('};')[0]!
    .matchAll(/^ {4}(\w+):/gm),
].map(([, name]) => name!);

test('the guide shows all members of the JSON line of penstock dev', () => {
  expect(printed.length).toBeGreaterThan(5);
  expect(Object.keys(shown)).toEqual(printed);
});

test('the recipes of pytest and Go read members that penstock dev prints', () => {
  const python = Object.values(filesOf(GUIDE, 'pytest')).join('');
  const used = [...python.matchAll(/penstock(?:_dev)?\["(\w+)"\]/g)].map(([, name]) => name!);
  const go = filesOf(GUIDE, 'Go')['main_test.go']!;
  const [, fields] = /struct \{(.*?)\n\}/s.exec(go)!;
  for (const [, name, tag] of fields!.matchAll(/^\t(\w+) +string(?: `json:"(\w+)"`)?$/gm))
    used.push(tag ?? name!.toLowerCase());
  expect(new Set(used)).toEqual(new Set(['url', 'api_key']));
  expect(printed).toEqual(expect.arrayContaining(used));
});

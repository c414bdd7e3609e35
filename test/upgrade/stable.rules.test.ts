import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { presentNames, stableFile } from '../../tools/generate/stable-names.ts';

const present = await presentNames();
const text = readFileSync(path.join(packageRoot, 'test/upgrade/stable.json'), 'utf8');
/** The names that a maintainer last agreed to. */
const agreed = JSON.parse(text) as typeof present;

describe.each(Object.keys(present))('docs/stability.md: %s', (kind) => {
  test('every agreed name still exists; a removal needs a new major version', () => {
    expect(agreed[kind]!.filter((name) => !present[kind]!.includes(name))).toEqual([]);
  });

  test('npm run generate has added every new name to test/upgrade/stable.json', () => {
    expect(present[kind]!.filter((name) => !agreed[kind]!.includes(name))).toEqual([]);
  });
});

test('npm run generate adds a new name to test/upgrade/stable.json and keeps a removed one', async () => {
  const [added] = present.commands!;
  const changed = { ...agreed, commands: ['removed', ...agreed.commands!.filter((name) => name !== added)] };
  const { commands } = JSON.parse(await stableFile(JSON.stringify(changed))) as typeof present;
  expect(commands).toEqual([...agreed.commands!, 'removed'].sort());
});

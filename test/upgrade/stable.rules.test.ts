import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { createProgram } from '../../src/admin/program.ts';
import { type ErrorName, errors, explain } from '../../src/errors.ts';
import { allOperations } from '../../src/operations/index.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { settings } from '../../src/platform/settings.ts';
import { rejectionReasons } from '../../src/profile/refusal.ts';
import { exported } from '../../tools/generate/registries.ts';

/** Tells whether a command with subcommands has an action of its own. Such a command prints JSON. */
const acts = ({ options }: Command) => options.some(({ long }) => long === '--json');

/** Lists each command with an action, and each of its options: `keys create`, `keys create --workspace`. */
function commandsOf(command: Command, words: string[] = []): string[] {
  const name = words.join(' ');
  const own =
    command.commands.length === 0 || command.registeredArguments.length > 0 || acts(command)
      ? [name, ...command.options.map(({ long }) => `${name} ${long}`)]
      : [];
  return [...own, ...command.commands.flatMap((one) => commandsOf(one, [...words, one.name()]))];
}

/** The current names of everything that docs/stability.md calls stable. */
const surface: Record<string, string[]> = {
  operations: allOperations('service_id').map(({ method, path: at }) => `${method} ${at}`),
  settings: Object.keys(settings),
  commands: commandsOf(await createProgram(() => {})),
  metrics: exported()
    .filter(({ name }) => name.startsWith('penstock_'))
    .map(({ name, type, labels }) => [name, type, ...labels].join(' ')),
  reasons: Object.keys(rejectionReasons),
  codes: (Object.keys(errors) as ErrorName[]).flatMap((name) => {
    const code = explain(name)?.code;
    return code === undefined ? [] : [`${errors[name].status} ${code}`];
  }),
};

/** The names that a maintainer last agreed to. */
const agreed = JSON.parse(
  readFileSync(path.join(packageRoot, 'test/upgrade/stable.json'), 'utf8'),
) as typeof surface;

describe.each(Object.keys(surface))('docs/stability.md: %s', (kind) => {
  test('every agreed name still exists; a removal needs a new major version', () => {
    expect(agreed[kind]!.filter((name) => !surface[kind]!.includes(name))).toEqual([]);
  });

  test('every new name is in test/upgrade/stable.json, from where it cannot be removed', () => {
    expect(surface[kind]!.filter((name) => !agreed[kind]!.includes(name))).toEqual([]);
  });
});

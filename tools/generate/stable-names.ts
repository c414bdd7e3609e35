import type { Command } from 'commander';
import { createProgram } from '../../src/admin/program.ts';
import { type ErrorName, errors, explain } from '../../src/errors.ts';
import { allOperations } from '../../src/operations/index.ts';
import { settings } from '../../src/platform/settings.ts';
import { rejectionReasons } from '../../src/profile/refusal.ts';
import { exported } from './registries.ts';

/** Names by kind, for example `commands`. */
type Names = Record<string, string[]>;

/** Returns whether a command with subcommands has an action of its own. Such a command prints JSON. */
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

/** Returns the present names of everything that docs/stability.md calls stable. */
export async function presentNames(): Promise<Names> {
  return {
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
}

/** Adds the present names to the text of test/upgrade/stable.json. A name is never removed. */
export async function stableFile(text: string): Promise<string> {
  const agreed = JSON.parse(text) as Names;
  const present = await presentNames();
  const kinds = Object.keys({ ...agreed, ...present });
  const all = kinds.map((kind) => [
    kind,
    [...new Set([...(agreed[kind] ?? []), ...(present[kind] ?? [])])].sort(),
  ]);
  return `${JSON.stringify(Object.fromEntries(all), null, 2)}\n`;
}

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { createProgram } from '../../src/admin/program.ts';
import { pages } from '../../src/board/server.ts';
import { allOperations } from '../../src/operations/index.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { descriptions } from '../../src/resources/index.ts';
import { auditActions } from '../../src/store/audit.ts';

const sources: string[] = Object.values(auditActions).flat();
const audited = (of: RegExp) => [...new Set(sources.filter((source) => of.test(source)))].sort();

/** The commands that print described resources. One renderer reads all of them with `list` and `find` of the description. */
const printing = Object.keys(descriptions).flatMap((noun) => [
  `penstock ${noun} list`,
  `penstock ${noun} show`,
]);

/** Other commands that change no data of the installation, except schema data of its database. */
const reading = new Set([
  ...[
    'dead-letters list',
    'dead-letters show',
    'segments list',
    'segments exports',
    'queue show',
    'segments preview',
    'import list',
    'retention plan',
    'retention show',
    'users blocked',
    'users find',
    'users show',
    'users history',
    'integrations test',
    'integrations logs',
    'queue losses',
  ].map((words) => `penstock ${words}`),
  // These commands write only through the processes that they start.
  'penstock start',
  'penstock dev',
  // `migrate` is recorded in _prisma_migrations. The audit table may not exist yet.
  ...['usage', 'audit', 'status', 'workers', 'doctor', 'completion', 'help', 'compare', 'migrate'].map(
    (verb) => `penstock ${verb}`,
  ),
]);

function leaves(command: Command, words: string): string[] {
  const below = command.commands.flatMap((one) => leaves(one, `${words} ${one.name()}`));
  // A command with subcommands also acts itself if it takes arguments or prints JSON.
  const acts =
    command.registeredArguments.length > 0 || command.options.some(({ long }) => long === '--json');
  return below.length === 0 || acts ? [words, ...below] : below;
}

describe('the audited actions include', () => {
  test('every command that writes', async () => {
    const all = leaves(await createProgram(() => {}), 'penstock');
    const writing = all.filter((command) => !reading.has(command) && !printing.includes(command));
    expect(writing.sort()).toEqual(audited(/^penstock /));
    expect([...reading].filter((command) => !all.includes(command))).toEqual([]);
  });

  test('every console route that changes data or downloads a file', () => {
    const acting = pages
      .map(({ method, path: route }) => `${method} ${route}`)
      .filter((route) => /^post |\.csv$|\/export$/.test(route));
    expect(audited(/^(?:get|post) /)).toEqual(acting.sort());
  });

  test('every SCIM operation that writes', () => {
    const writing = allOperations('service_id')
      .filter(({ auth, method }) => auth === 'scim' && method !== 'GET')
      .map(({ id }) => id);
    expect(audited(/^scim\./)).toEqual(writing.sort());
  });
});

/** Actions that only the console or only the command line offers. Each value is the reason or the alternative. */
const oneSided: Record<string, string> = {
  'audit.download': 'penstock audit prints the entries, and leaves none',
  'exports.begin': 'writes to a folder of the machine on which it runs; the page Exports has the command',
  'imports.begin': 'reads files of the machine on which it runs; the page Imports has the command',
  'queue.set_lanes': 'needs all processes stopped, also the console; the page Health has the command',
  'segments.download': 'penstock segments export and penstock export write the users',
  'syncs.download_rows': 'penstock integrations logs prints the rows',
};

test('each audited action is in the console and on the command line, or has a reason', () => {
  const result = Object.entries(auditActions)
    .filter(([, given]: [string, readonly string[]]) => {
      const isCommand = given.some((source) => source.startsWith('penstock '));
      const isConsole = given.some((source) => /^(?:get|post) /.test(source));
      return isCommand !== isConsole;
    })
    .map(([name]) => name);
  expect(result.sort()).toEqual(Object.keys(oneSided).sort());
});

const texts = ['src', 'workers'].flatMap((folder) =>
  readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.includes('generated') && name !== 'store/audit.ts')
    .map((name) => ({ name, text: readFileSync(path.join(packageRoot, folder, name), 'utf8') })),
);

/** Source folders in which an action may be written to the audit, by the form of its entry. */
const rooms: [way: RegExp, room: RegExp][] = [
  [/^penstock /, /^(?:admin|resources|queue|store)\//],
  [/^(?:get|post) |^\(/, /^(?:board|resources|queue|store)\//],
  [/^scim\./, /^operations\//],
];

test.each(Object.entries(auditActions))(
  '%s is written to the audit by the code that performs it',
  (action, done: readonly string[]) => {
    for (const [source, owner] of rooms) {
      if (!done.some((one) => source.test(one))) continue;
      const named = texts.filter(({ name, text }) => owner.test(name) && text.includes(`'${action}'`));
      expect(named.map(({ name }) => name)).not.toEqual([]);
    }
  },
);

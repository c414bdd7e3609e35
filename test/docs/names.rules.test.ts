import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { createProgram } from '../../src/admin/program.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { settings } from '../../src/platform/settings.ts';
import { exported } from '../../tools/generate/registries.ts';
import { sources } from '../setup/sources.ts';

/** Documents about the present. CHANGELOG.md also names parts that no longer exist. */
const documents = [
  ...['README.md', 'SECURITY.md', 'CONTRIBUTING.md'],
  ...markdownIn('docs'),
  ...markdownIn('docs/adr'),
  ...markdownIn('docs/evidence'),
];

const sourceText = sources.map(({ text }) => text).join('\n');
const files = sources.map(({ file }) => file);
const { scripts } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
const program = await createProgram(() => {});
const metrics = new Set(exported().map(({ name }) => name));

/** Names that a document's own example chooses, an error code of the vendor, and a name of POSIX. */
const EXAMPLES = ['SECRET_ACCESS_KEY', 'WAREHOUSE_SECRET', 'EMAIL_BAD_FORMAT', 'SHUT_WR'];

/** Prefixes of settings that other programs define: OpenTelemetry's SDK, Node, npm and S3 tools. */
const FOREIGN_SETTING =
  /^(?:OTEL|NODE|MALLOC|AWS|KUBERNETES|REDIS_MAXMEMORY$|POSTGRES_PASSWORD$|PGPASSWORD$)/;

describe.each(documents)('%s', (document) => {
  const text = readFileSync(path.join(packageRoot, document), 'utf8');
  const code = [...text.matchAll(/```\w*\n([\s\S]*?)```|`([^`\n]+)`/g)].map(
    ([, block, span]) => block ?? span!,
  );

  test('names only commands of penstock that exist', () => {
    const named = code.flatMap((piece) => [
      ...piece.matchAll(/(?<!-n |install )(?<![\w./-])penstock ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?)/gm),
    ]);
    expect(named.map(([, words]) => words!).filter((words) => !isCommand(words.split(' ')))).toEqual([]);
  });

  test('names only npm scripts that exist', () => {
    const named = code.flatMap((piece) => [...piece.matchAll(/npm run (?:--silent )?([a-z][\w:-]*)/g)]);
    expect(named.map(([, script]) => script!).filter((script) => !Object.hasOwn(scripts, script))).toEqual(
      [],
    );
  });

  test('names only settings that exist', () => {
    const named = code.flatMap((piece) => [
      ...piece.matchAll(/(?<![\w.$-])([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)(?=$|[=`\s,;:)])/g),
    ]);
    const unknown = named
      .map(([, name]) => name!)
      .filter(
        (name) => !Object.hasOwn(settings, name) && !FOREIGN_SETTING.test(name) && !EXAMPLES.includes(name),
      )
      // Names that the code itself uses in another meaning: error codes, columns, variables of tests and tools.
      .filter((name) => !new RegExp(`\\b${name}\\b`).test(sourceText));
    expect(unknown).toEqual([]);
  });

  test('names only metrics that exist', () => {
    const named = text.match(/\bpenstock_[a-z0-9_]*[a-z0-9]\b/g) ?? [];
    const unknown = named.filter((name) => {
      const metric = name.replace(/_(?:bucket|sum|count)$/, '');
      return !metrics.has(metric) && !sourceText.includes(metric);
    });
    expect(unknown).toEqual([]);
  });

  test('names only source files that exist', () => {
    const named = code.flatMap((piece) => [...piece.matchAll(/(?<![\w*./-])([\w-]+(?:\.[\w-]+)*\.ts)\b/g)]);
    const unknown = named
      .map(([, name]) => name!)
      .filter((name) => !files.some((file) => path.posix.basename(file) === name));
    expect(unknown).toEqual([]);
  });
});

/** Whether the words begin with a command; words after a command without subcommands are its arguments. */
function isCommand(words: string[]): boolean {
  let command: Command = program;
  for (const word of words) {
    if (command.commands.length === 0 || command.registeredArguments.length > 0) return true;
    const next = command.commands.find((one) => one.name() === word || one.aliases().includes(word));
    if (!next) return word === 'help';
    command = next;
  }
  return true;
}

function markdownIn(folder: string): string[] {
  return readdirSync(path.join(packageRoot, folder))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${folder}/${name}`);
}

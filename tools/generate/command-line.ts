import type { Command, Option } from 'commander';
import { createProgram } from '../../src/admin/program.ts';

const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll('<', '\\<').replace(/\s+/g, ' ');

/** Returns the first sentence of a text. The section of a command has all of them. */
const firstSentence = (text: string) => /^.*?[.](?= [A-Z]|$)/.exec(text)?.[0] ?? text;

/** Returns the text of docs/command-line.md: every command of `penstock` with its arguments, options and example. */
export async function commandLinePage(): Promise<string> {
  const program = await createProgram(() => {});
  const groups = new Map<string, Command[]>();
  for (const command of program.commands) {
    const heading = (command.helpGroup() || 'Other:').replace(/:$/, '');
    groups.set(heading, [...(groups.get(heading) ?? []), command]);
  }
  const overview = [...groups.values()].flatMap((commands) =>
    commands.map(
      (command) =>
        `| [\`${command.name()}\`](#penstock-${command.name()}) | ${cell(firstSentence(command.description()))} |`,
    ),
  );
  const parts = program.commands.flatMap((command) => describe(command, `penstock ${command.name()}`, 2));
  return `# Command line

<!-- Generated from src/admin by \`npm run generate\`. -->
<!-- markdownlint-disable search-replace -->

\`penstock\` administers an installation: the one of \`DATABASE_URL\`, or the embedded one in \`DATA_DIR\`. Run it with the
settings of the processes, for example:

| Installation | Command |
| --- | --- |
| a clone of the repository | \`npx penstock doctor\`, or \`npm run -s penstock -- doctor\` |
| the npm package | \`npx penstock doctor\`, in the folder with \`node_modules\` |
| docker compose | \`docker compose exec web penstock doctor\` |
| Kubernetes | \`kubectl -n penstock exec deploy/penstock-sync -- penstock doctor\` |
| systemd, as root | \`systemd-run --pipe --wait --collect -p EnvironmentFile=/etc/penstock/penstock.env -E DEPLOYMENT_FORM=production -E DATA_DIR=/var/lib/penstock-sync -p WorkingDirectory=/opt/penstock node scripts/penstock.cjs doctor\` |

A clone and the npm package read the settings from the environment. If your settings are in a file such as \`.env\`, load it first:
\`set -a; . ./.env; set +a\`. On Kubernetes, the pods of \`penstock-sync\` have every secret that a command can need.

Set the \`REDIS_URL\` of the workers for commands that replay, import, delete or change the number of lanes. Every command prints JSON with
\`--json\`, and \`penstock help <command>\` prints this page's text for one command. A command exits with 0 if it succeeded. Errors are one line on standard error.

| Command | Does |
| --- | --- |
${overview.join('\n')}

${parts.join('\n')}`;
}

/** Minimum number of options that a noun lists once, and of verbs that have each of them. */
const MIN_SHARED = 4;

const rowOf = (option: Option) =>
  `| \`${option.flags.replaceAll('|', '\\|')}\` | ${cell(sentenceOf(option))} |`;

const optionsOf = ({ options }: Command) =>
  options.filter((option) => option.long !== '--json' && !option.hidden);

/** Returns the options that at least MIN_SHARED verbs of a noun have, as rows; empty if these are fewer than MIN_SHARED. */
function sharedRows({ commands }: Command): string[] {
  const counts = new Map<string, number>();
  for (const row of commands.flatMap((verb) => optionsOf(verb).map(rowOf)))
    counts.set(row, (counts.get(row) ?? 0) + 1);
  const shared = [...counts].filter(([, count]) => count >= MIN_SHARED).map(([row]) => row);
  return shared.length < MIN_SHARED ? [] : shared;
}

/** @param shared rows that the section of the noun lists */
function describe(command: Command, path: string, depth: number, shared: string[] = []): string[] {
  const usage = command.registeredArguments.map((argument) => {
    const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
    return argument.required ? ` <${name}>` : ` [${name}]`;
  });
  const rows = [
    ...command.registeredArguments.map(
      (argument) => `| \`${cell(argument.name())}\` | ${cell(argument.description)} |`,
    ),
    ...optionsOf(command).map(rowOf),
  ];
  const hasShared = shared.length > 0 && shared.every((row) => rows.includes(row));
  const anchor = path.split(' ').slice(0, -1).join('-');
  const own = hasShared ? rows.filter((row) => !shared.includes(row)) : rows;
  const common = command.commands.length > 0 ? sharedRows(command) : [];
  const table = `${hasShared ? `\nTakes the [common options](#${anchor}).\n` : ''}${tableOf(own)}${common.length > 0 ? `\nThese options are common to several commands:\n${tableOf(common)}` : ''}`;
  const line = exampleOf(command) ?? `${path}${usage.join('')}`;
  // The heading already is the command.
  const example = line === path ? '' : `\n\`\`\`sh\n${line}\n\`\`\`\n`;
  // The verbs of a command that does nothing by itself have examples of their own.
  const isNoun = command.commands.length > 0 && rows.length === 0;
  return [
    `${'#'.repeat(depth)} ${path}

${cell(command.description())}
${isNoun ? '' : example}${table}`,
    ...command.commands.flatMap((verb) => describe(verb, `${path} ${verb.name()}`, depth + 1, common)),
  ];
}

const tableOf = (rows: string[]) =>
  rows.length === 0
    ? ''
    : `\n| ${rows.every((row) => row.startsWith('| `-')) ? 'Option' : 'Argument or option'} | Meaning |\n| --- | --- |\n${rows.join('\n')}\n`;

/** Maximum number of choices of an option that the page lists. */
const MAX_CHOICES = 20;

function sentenceOf(option: Option): string {
  const required = option.mandatory ? ' (required)' : '';
  const { argChoices = [] } = option;
  const more = argChoices.length > MAX_CHOICES ? ', …, as the help of the command lists them' : '';
  const choices = argChoices.length > 0 ? `: ${argChoices.slice(0, MAX_CHOICES).join(', ')}${more}` : '';
  const value = option.defaultValue;
  const shown =
    value === undefined || value === '' || typeof value === 'boolean' ? '' : ` (default: ${value})`;
  return `${option.description}${choices}${required}${shown}`;
}

/** Returns the example that the help of a command ends with. */
function exampleOf(command: Command): string | undefined {
  let help = '';
  command.configureOutput({ writeOut: (text) => (help += text) });
  command.outputHelp();
  return /\nExample:\n {2}\$ (?:\S+ )*?(penstock .+)/.exec(help)?.[1];
}

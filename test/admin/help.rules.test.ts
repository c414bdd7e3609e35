import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { createProgram } from '../../src/admin/program.ts';
import { expectRefusal, penstock } from './penstock.ts';

const nouns = [
  ...['companies', 'workspaces', 'keys', 'groups', 'users', 'preference-centers', 'accounts', 'teams'],
  ...['permission-sets', 'scim-tokens', 'integrations', 'limits', 'dead-letters', 'queue'],
];
const verbs = [
  'workspaces create',
  'workspaces list',
  'workspaces move',
  'keys create',
  'keys list',
  'keys revoke',
  'groups create',
  'groups list',
  'groups archive',
  'users block',
  'users unblock',
  'users blocked',
  'users history',
  ...['find', 'show', 'export', 'delete'].map((verb) => `users ${verb}`),
  ...['set-subscription', 'set-attribute', 'remove-attribute', 'preference-link'].map(
    (verb) => `users ${verb}`,
  ),
  ...['create', 'change', 'list', 'show', 'revoke'].map((verb) => `preference-centers ${verb}`),
  ...['create', 'list', 'show', 'test', 'update', 'pause', 'resume', 'delete', 'sync', 'cancel', 'logs'].map(
    (verb) => `integrations ${verb}`,
  ),
  'limits set',
  'limits list',
  'limits reset',
  'companies create',
  'companies list',
  'teams create',
  'teams list',
  'permission-sets create',
  'permission-sets list',
  'scim-tokens issue',
  'scim-tokens list',
  'scim-tokens rotate',
  'scim-tokens revoke',
  'accounts list',
  'accounts show',
  'accounts invite',
  'usage',
  ...['import', 'export', 'compare'],
  'dead-letters list',
  'dead-letters show',
  'dead-letters replay',
  ...['show', 'set-lanes', 'losses', 'confirm-loss'].map((verb) => `queue ${verb}`),
  ...['migrate', 'status', 'workers', 'workers forget', 'doctor'],
];

/** Runs `--help` of a command inside the test process and returns its output. */
async function helpOf(words: string): Promise<string> {
  const shown: string[] = [];
  const program = await createProgram((text) => expect.fail(text));
  for (const command of withSubcommands(program))
    command.configureOutput({ writeOut: (text) => void shown.push(text) });
  const end = program.parseAsync([...words.split(' '), '--help'], { from: 'user' });
  await expect(end).rejects.toMatchObject({ exitCode: 0 });
  return shown.join('');
}

function withSubcommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(withSubcommands)];
}

describe('penstock --help', () => {
  test('lists every command and needs no database', async () => {
    const { code, stdout, stderr } = await penstock(['--help']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    for (const command of [...nouns, 'usage', 'migrate', 'status', 'workers', 'doctor', 'completion'])
      expect(stdout).toMatch(new RegExp(`^  ${command} `, 'm'));
  });

  test.each(nouns)('%s --help lists its verbs with a sentence and an example', async (noun) => {
    const stdout = await helpOf(noun);
    expect(stdout).toContain(`Example:\n  $ penstock ${noun} `);
    for (const verb of verbs.filter((name) => name.startsWith(`${noun} `))) {
      expect(stdout).toMatch(new RegExp(`^  ${verb.slice(noun.length + 1)} .*[A-Z]`, 'm'));
    }
  });

  test.each(verbs)('%s --help has a sentence, an example and --json', async (verb) => {
    const stdout = await helpOf(verb);
    expect(stdout).toMatch(/^Usage: penstock .*\n\n[A-Z][^.]*\./);
    expect(stdout).toContain(`Example:\n  $ penstock ${verb}`);
    expect(stdout).toContain('--json');
  });

  test.each(['keys', 'keys create'])(
    'penstock %s --help prints the same help from the command line',
    async (words) => {
      const ending = await penstock([...words.split(' '), '--help']);
      expect(ending).toEqual({ code: 0, stdout: await helpOf(words), stderr: '' });
    },
  );

  test.each(nouns)('%s is loaded alone by its name, and together with all nouns', async (noun) => {
    const named = async (word?: string) =>
      (await createProgram(expect.fail, word)).commands.map((one) => one.name());
    expect(await named(noun)).toEqual([noun]);
    expect(await named()).toContain(noun);
  });

  test('groups the commands and starts with start, status and doctor', async () => {
    const { stdout } = await penstock(['--help']);
    const headings = stdout.match(/^[A-Z][A-Za-z ]+:$/gm);
    expect(headings).toEqual([
      ...['Options:', 'Run:', 'Check and operate:', 'Users and data:', 'Workspaces and access:'],
      ...['Connections:', 'Shell and help:', 'Example:'],
    ]);
    const [, first] = stdout.split('Check and operate:\n');
    expect(stdout).toMatch(/^Run:\n {2}start /m);
    expect(first?.match(/^ {2}([a-z-]+) /gm)?.slice(0, 2)).toEqual(['  status ', '  doctor ']);
  });

  test.each(['keys', 'keys create', 'users show'])('penstock help %s prints its help', async (words) => {
    const ending = await penstock(['help', ...words.split(' ')]);
    expect(ending).toEqual({ code: 0, stdout: await helpOf(words), stderr: '' });
  });

  test('rejects help for an unknown command and names it', async () => {
    expectRefusal(await penstock(['help', 'keyz']), "unknown command 'keyz'");
  });

  test('prints the version of the package', async () => {
    expect((await penstock(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});

describe('an invalid command line', () => {
  test('rejects an unknown command and names it', async () => {
    expectRefusal(await penstock(['keyz']), "unknown command 'keyz'", 'keys');
  });

  test('rejects an unknown option and names it', async () => {
    expectRefusal(await penstock(['keys', 'list', '--color']), "unknown option '--color'");
  });

  test('names a missing option', async () => {
    expectRefusal(await penstock(['workspaces', 'create']), "'--name <name>' not specified");
  });

  test('a noun without a verb shows the help and fails', async () => {
    const { code, stdout, stderr } = await penstock(['keys']);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('Usage: penstock keys');
  });
});

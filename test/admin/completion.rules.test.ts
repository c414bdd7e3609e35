import type { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { completionsOf } from '../../src/admin/commands/completion.ts';
import { createProgram } from '../../src/admin/program.ts';
import { expectRefusal, penstock } from './penstock.ts';

const program = await createProgram((text) => expect.fail(text));
const completions = completionsOf(program);

/** Lists every command with its path, for example ` queue show`. */
function everyCommand(command: Command, path = ''): [string, Command][] {
  return [[path, command], ...command.commands.flatMap((one) => everyCommand(one, `${path} ${one.name()}`))];
}

test.each(everyCommand(program))('penstock%s completes its commands and options', (path, command) => {
  const words = completions.find((completion) => completion.path === path)!.words.map(({ word }) => word);
  const wanted = [
    ...command.commands.map((one) => one.name()),
    ...command.options.flatMap(({ long, hidden }) => (long && !hidden ? [long] : [])),
  ];
  expect(wanted.filter((word) => !words.includes(word))).toEqual([]);
});

describe.each(['bash', 'zsh', 'fish'])('the script for %s', (shell) => {
  test('needs no database and contains every command', async () => {
    const { code, stdout, stderr } = await penstock(['completion', shell]);
    expect([code, stderr]).toEqual([0, '']);
    for (const { path } of completions) expect(stdout).toContain(`'${path}'`);
    expect(stdout).toContain('set-lanes');
  });
});

test('rejects an unknown shell and lists the known shells', async () => {
  expectRefusal(await penstock(['completion', 'ksh']), 'bash, zsh, fish');
});

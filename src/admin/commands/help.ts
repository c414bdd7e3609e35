import type { Command } from 'commander';
import { PENSTOCK } from '../command.ts';

/** Adds `help`, which takes any number of words; Commander's own shows the help of a noun but not of its verbs. */
export function addHelp(program: Command): void {
  program
    .helpCommand(false)
    .command('help')
    .description('Show the help of a command.')
    .argument('[words...]', 'command, for example: keys create')
    .addHelpText('after', `\nExample:\n  $ ${PENSTOCK} help keys create`)
    .action((words: string[]) => {
      let command = program;
      for (const word of words)
        command =
          command.commands.find((one) => one.name() === word) ??
          program.error(`error: unknown command '${word}'`);
      command.outputHelp();
    });
}

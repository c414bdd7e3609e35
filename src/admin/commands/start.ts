import type { Command } from 'commander';
import { described, type Programs } from '../command.ts';

export function addStart(program: Command, { start }: Programs): void {
  described(program.command('start'), {
    sentence:
      'Run web, worker, sync and console on this machine until Ctrl-C, with an embedded Postgres in DATA_DIR unless DATABASE_URL is set.',
    example: 'start',
  }).action(() => start());
}

import { type Command, InvalidArgumentError } from 'commander';
import { type DevOptions, described, type Programs } from '../command.ts';

const MAX_PORT = 65_535;

export function addDev(program: Command, { dev }: Programs): void {
  described(program.command('dev'), {
    sentence:
      'Run everything in one process for tests: a temporary database that is removed at the end, fixed credentials, and control endpoints below /_dev.',
    example: 'dev --port 0 --json',
  })
    .option('--port <port>', 'port of the API; 0: a free port (default: PORT, or 3000)', parsePort)
    .option('--host <address>', 'address to listen on (default: loopback only)')
    .option('--seed <file>', 'YAML or JSON file with users, groups and other data to create')
    .option('--json', 'print one line of JSON with the addresses and credentials')
    .action((options: DevOptions) => dev(options));
}

function parsePort(text: string): number {
  const port = Number(text);
  if (!/^\d+$/.test(text) || port > MAX_PORT)
    throw new InvalidArgumentError(`Must be a port from 0 to ${MAX_PORT}.`);
  return port;
}

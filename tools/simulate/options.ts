import { Command, InvalidArgumentError } from 'commander';

export interface SimulateOptions {
  /** The only seed to run. */
  seed?: number;
  /** The first of several seeds. */
  from: number;
  /** Number of seeds. */
  seeds: number;
  /** Real minutes for each mutation. */
  minutes: number;
  /** Maximum number of simulations for shrinking. */
  attempts: number;
  threads?: number;
  trace: boolean;
  shrink: boolean;
  mutations: boolean;
  /** Whether the tables are in a real Postgres. */
  postgres: boolean;
  /** Name of a fault that is put into the code. */
  mutation?: string;
}

/** Parses `arguments_`, which has the form of `process.argv`. Exits with a message if an option is invalid. */
export function readOptions(arguments_: string[]): SimulateOptions {
  const command = new Command('npm run simulate --')
    .description('Run web and the workers in simulated processes, and check the guarantees.')
    .option('--seed <number>', 'run this seed alone', parseWholeNumber)
    .option('--from <number>', 'the first seed', parseWholeNumber, 1)
    .option('--seeds <number>', 'how many seeds to run', parseWholeNumber, 1000)
    .option('--minutes <number>', 'minutes for each mutation', parsePositiveNumber, 10)
    .option('--attempts <number>', 'simulations for shrinking', parseWholeNumber, 1000)
    .option(
      '--threads <number>',
      'threads that run seeds; without it, one for each processor',
      parseWholeNumber,
    )
    .option('--trace', 'with --seed: print what happened in each lane', false)
    .option('--shrink', 'with --seed: remove work and faults as long as the seed fails', false)
    .option('--mutations', 'put known faults into the code, and look for a seed that finds each', false)
    .option('--postgres', 'keep the tables in a real Postgres, and run streams and upkeep', false)
    .option('--mutation <name>', 'put this fault into the code')
    .addHelpText(
      'after',
      '\nExamples:\n  $ npm run simulate -- --seeds 10000\n  $ npm run simulate -- --seed 42 --trace',
    );
  command.parse(arguments_);
  return command.opts<SimulateOptions>();
}

function parseWholeNumber(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError('It is a whole number.');
  return value;
}

function parsePositiveNumber(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('It is a positive number.');
  return value;
}

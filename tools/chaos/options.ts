import { Command, InvalidArgumentError, Option } from 'commander';
import { type Backend, backends } from '../../test/setup/fleet.ts';

export interface ChaosOptions {
  /** Faults by number; empty means all. */
  numbers: number[];
  /**
   * Minutes of the long form with randomly mixed faults. If absent, the scenarios run one after the other.
   */
  minutes?: number;
  /** Minimum number of acknowledged objects in the long form. */
  objects: number;
  seed: number;
  backends: Backend[];
  short: boolean;
}

/**
 * Parses `arguments_`, which has the form of `process.argv`. Exits with a message if an argument is invalid.
 */
export function readOptions(arguments_: string[]): ChaosOptions {
  const command = new Command('npm run chaos --')
    .description('Break Penstock on purpose, and compare the responses with the stored data.')
    .argument('[numbers...]', 'faults by their number; without any, all', collect, [])
    .option('--minutes <number>', 'the long form: faults mixed at random for so long', positive)
    .option(
      '--objects <number>',
      'the long form ends no sooner than so many are acknowledged',
      positive,
      1_000_000,
    )
    .option(
      '--seed <number>',
      'of what is random; printed, for the same again',
      whole,
      Date.now() % 1_000_000,
    )
    .addOption(
      new Option('--backend <name>', 'where the queue lives; without it, both').choices([...backends]),
    )
    .option('--short', 'each scenario in seconds, as the tests run it', false)
    .addHelpText(
      'after',
      '\nExamples:\n  $ npm run chaos -- 1 4 8\n  $ npm run chaos -- --minutes 30 --seed 7',
    );
  command.parse(arguments_);
  const { backend, ...rest } = command.opts<
    Omit<ChaosOptions, 'backends' | 'numbers'> & { backend?: Backend }
  >();
  return {
    ...rest,
    numbers: command.processedArgs[0] as number[],
    backends: backend ? [backend] : [...backends],
  };
}

function collect(text: string, before: number[]): number[] {
  return [...before, whole(text)];
}

function whole(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError('It is a whole number.');
  return value;
}

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('It is a number above 0.');
  return value;
}

import { Command, InvalidArgumentError } from 'commander';

export interface BenchOptions {
  rounds: number;
  quick: boolean;
  /** Seconds of one measurement. */
  seconds?: number;
  only: string[];
  /** Seconds. */
  patience: number;
  check: boolean;
  /** Rows of a table that is synced. */
  syncedRows?: number;
  /** Settings of Penstock's own processes. */
  set: Record<string, string>;
  output?: string;
  /** Folder of the Postgres programs to use. */
  postgres?: string;
  /** Sizes of the events table in ascending order. */
  growth: number[];
  /** Whether to measure latency and throughput at several loads. */
  curve: boolean;
  /** Whether to compare one worker with two while Postgres has its own core. */
  pinned: boolean;
  /** Whether to measure the cost of traces. */
  traced: boolean;
  streamed: boolean;
  /** Whether to compare many workspaces with one, and to measure a quiet workspace alongside a noisy one. */
  tenants: boolean;
  /** Whether to measure objects that are ordered in several lanes. */
  fences: boolean;
  /** Whether to measure the traffic shapes instead of all other rows. */
  shapes: boolean;
  /** Whether to measure imports instead of all other rows. */
  import: boolean;
  /** Number of profiles in the row with a large base of users. */
  base: number;
  /** Minutes of full load during which memory is watched. */
  soak?: number;
}

/**
 * Parses `arguments_`, which has the form of `process.argv`. Exits with a message if an argument is invalid.
 */
export function readOptions(arguments_: string[]): BenchOptions {
  return new Command('npm run bench --')
    .description('Measure Penstock side by side with a naive pipeline and with COPY, in turns.')
    .option('--rounds <number>', 'how often each row is measured', positive, 5)
    .option('--quick', 'one round of short measurements, in about a minute', false)
    .option('--seconds <number>', 'length of one measurement (8; with --quick 3)', positive)
    .option('--only <name>', 'only rows whose name contains this; may be repeated', collect, [])
    .option(
      '--patience <seconds>',
      'longest wait before each measurement for a machine that is free',
      positive,
      1,
    )
    .option('--synced-rows <number>', 'rows of a sync (10,000 for each of the seconds)', positive)
    .option('--check', 'exit with 1 when a ratio is out of its bounds in bounds.json', false)
    .option(
      '--set <NAME=value>',
      "a setting of Penstock's processes, LANES=8 for instance",
      collectSetting,
      {},
    )
    .option(
      '--growth <events>',
      'also when the tables hold so many events (1000000,10000000); takes minutes',
      ascending,
      [],
    )
    .option('--curve', 'also at 10 to 100 % of full load; draws generated/throughput-latency.svg', false)
    .option('--pinned', 'also one worker and two while Postgres has a core of its own (needs taskset)', false)
    .option('--traced', 'also while one request in a hundred, and while every request is traced', false)
    .option('--streamed', 'also while everything is sent on to two webhooks', false)
    .option('--tenants', 'also a thousand workspaces, and a quiet one alongside a noisy one', false)
    .option('--fences', 'also objects in several lanes, of one workspace and of 20 per flush', false)
    .option(
      '--shapes',
      'instead, the traffic that people have; writes generated/bench-shapes.json, draws generated/shapes.svg',
      false,
    )
    .option('--import', 'instead, imports: over live requests, and what these wait during one', false)
    .option('--base <profiles>', 'profiles of the large base among these', positive, 10_000_000)
    .option('--soak <minutes>', 'also full load for so long, with the memory of web and worker', positive)
    .option(
      '--postgres <folder>',
      "the Postgres whose programs lie there (/usr/lib/postgresql/17/bin), not npm's",
    )
    .option('--output <file>', 'write the results there; a full run writes generated/bench-results.json')
    .addHelpText('after', '\nExample:\n  $ npm run bench -- --quick --check')
    .parse(arguments_)
    .opts<BenchOptions>();
}

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('It is a number above 0.');
  return value;
}

function ascending(text: string): number[] {
  return text
    .split(',')
    .map(positive)
    .sort((a, b) => a - b);
}

function collect(text: string, before: string[]): string[] {
  return [...before, text];
}

function collectSetting(text: string, before: Record<string, string>): Record<string, string> {
  const [, name, value] = /^([A-Z_]+)=(.*)$/.exec(text) ?? [];
  if (name === undefined) throw new InvalidArgumentError('It is written NAME=value.');
  return { ...before, [name]: value! };
}

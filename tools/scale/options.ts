import { Command, InvalidArgumentError } from 'commander';

/** Options of `npm run scale`. One list varies at a time, while the others have their first value. */
export interface ScaleOptions {
  /** Numbers of worker processes. */
  workers: number[];
  /** Numbers of lanes of all shards together. More shards do not add lanes. */
  lanes: number[];
  shards: number[];
  workspaces: number[];
  /** Number of web processes. */
  edges: number;
  /** Whether to use a Redis Cluster of three primaries, each with a replica that confirms writes, instead of one Redis. */
  cluster: boolean;
  /** Whether to create the databases on the Citus of CITUS_URL instead of a new Postgres. */
  citus: boolean;
  /** Folder with the programs of the new Postgres. Default: the programs of the npm package. */
  postgres?: string;
  /** Approximate number of objects per request. */
  objects: number;
  /** Length in seconds of each half of a point: without faults, and with kills. */
  seconds: number;
  /** Seconds of traffic before the first half. Default: 2 for each web process and worker. */
  warmUp?: number;
  seed: number;
}

/** Parses `arguments_`, which has the form of `process.argv`. Exits with a message if an option is invalid. */
export function readOptions(arguments_: string[]): ScaleOptions {
  return new Command('npm run scale --')
    .description(
      'Send traffic of many workspaces to fleets of several sizes, kill workers, and check what is stored.',
    )
    .option('--workers <numbers>', 'worker processes', parseNumbers, [1, 2, 4, 8])
    .option('--lanes <numbers>', 'lanes of all shards together', parseNumbers, [8])
    .option('--shards <numbers>', 'shards, over which the workspaces are spread', parseNumbers, [1])
    .option('--edges <number>', 'web processes', parseNumber, 1)
    .option('--cluster', 'a Redis Cluster of three primaries, each with a replica that is waited for', false)
    .option('--citus', 'databases on the Citus of CITUS_URL, which is on this machine', false)
    .option('--postgres <folder>', "the Postgres whose programs lie there, not npm's")
    .option('--workspaces <numbers>', 'workspaces that send evenly', parseNumbers, [1, 10, 100, 1000])
    .option('--objects <number>', 'objects per request, about', parseNumber, 75)
    .option(
      '--seconds <number>',
      'length of each half of a point: undisturbed, and with kills',
      parseNumber,
      5,
    )
    .option(
      '--warm-up <number>',
      'seconds before anything is measured (2 for each web and worker)',
      parseNumber,
    )
    .option('--seed <number>', 'chooses who is killed', parseNumber, 1)
    .addHelpText('after', '\nExample:\n  $ npm run scale -- --workers 1,8 --workspaces 1,1000')
    .parse(arguments_)
    .opts<ScaleOptions>();
}

function parseNumber(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('It is a number above 0.');
  return value;
}

function parseNumbers(text: string): number[] {
  return text.split(',').map(parseNumber);
}

import { Command, InvalidArgumentError } from 'commander';

/** What is varied; each list alone, while the others are at their first value. */
export interface ScaleOptions {
  /** Worker processes. */
  workers: number[];
  /** Of all shards together, so that more shards are no more lanes. */
  lanes: number[];
  shards: number[];
  workspaces: number[];
  /** Web processes. */
  edges: number;
  /** Three primaries with a replica each that is waited for, and not one Redis. */
  cluster: boolean;
  /** Databases are those of the Citus of CITUS_URL, and not of a Postgres of its own. */
  citus: boolean;
  /** Folder of the programs of the Postgres of its own. */
  postgres?: string;
  /** Objects per request, about. */
  objects: number;
  /** Of each of the two halves of a point: undisturbed, and with kills. */
  seconds: number;
  /** Before the first of them; absent: as long as its processes need. */
  warmUp?: number;
  seed: number;
}

/** `arguments_` as in `process.argv`. Ends the process with a message when something is wrong. */
export function readOptions(arguments_: string[]): ScaleOptions {
  return new Command('npm run scale --')
    .description(
      'Send traffic of many workspaces to fleets of several sizes, kill workers, and check what is stored.',
    )
    .option('--workers <numbers>', 'worker processes', numbers, [1, 2, 4, 8])
    .option('--lanes <numbers>', 'lanes of all shards together', numbers, [8])
    .option('--shards <numbers>', 'shards, over which the workspaces are spread', numbers, [1])
    .option('--edges <number>', 'web processes', number, 1)
    .option('--cluster', 'a Redis Cluster of three primaries, each with a replica that is waited for', false)
    .option('--citus', 'databases on the Citus of CITUS_URL, which is on this machine', false)
    .option('--postgres <folder>', "the Postgres whose programs lie there, not npm's")
    .option('--workspaces <numbers>', 'workspaces that send evenly', numbers, [1, 10, 100, 1000])
    .option('--objects <number>', 'objects per request, about', number, 75)
    .option('--seconds <number>', 'length of each half of a point: undisturbed, and with kills', number, 5)
    .option('--warm-up <number>', 'seconds before anything is measured (2 for each web and worker)', number)
    .option('--seed <number>', 'chooses who is killed', number, 1)
    .addHelpText('after', '\nExample:\n  $ npm run scale -- --workers 1,8 --workspaces 1,1000')
    .parse(arguments_)
    .opts<ScaleOptions>();
}

function number(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('It is a number above 0.');
  return value;
}

function numbers(text: string): number[] {
  return text.split(',').map(number);
}

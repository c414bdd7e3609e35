import { createHash } from 'node:crypto';
import { PrismaPg } from '@prisma/adapter-pg';
import { Command } from 'commander';
import { PrismaClient } from '../../src/generated/prisma/client.ts';
import { newId } from '../../src/platform/ids.ts';
import { jsonArray, textArray, uuidArray } from '../../src/store/arrays.ts';
import { openPool } from '../../src/store/database.ts';
import { median, spread } from './figure.ts';
import { openStore } from './postgres-servers.ts';

/**
 * `npm run statements` measures the processor time of this process for one statement on `pg`, with a name and
 * binary arrays, and for the same statement through Prisma's raw query, with `statementNameGenerator`. The
 * statement sends a set of rows and returns it. Both libraries take turns on a Postgres that is started for it.
 * Run it on a quiet machine; docs/adr/0031 has the figures. The defaults take about a minute and a half.
 */

const TEXT =
  'select id, name, properties from unnest($1::uuid[], $2::text[], $3::jsonb[]) as given (id, name, properties)';

/** Rows in one statement. The difference between the sizes gives the time per row. */
const SIZES = [1, 100, 1000];

interface Row {
  id: string;
  name: string;
  properties: { screen: string; step: number };
}

interface Library {
  name: string;
  send(rows: Row[]): Promise<unknown[]>;
}

interface Options {
  rounds: number;
  seconds: number;
  postgres?: string;
}

async function main(): Promise<void> {
  const { rounds, seconds, postgres } = new Command('npm run statements --')
    .description('Measure the processor time of statements on pg and through Prisma.')
    .option('--rounds <number>', 'turns of each library and size', Number, 7)
    .option('--seconds <number>', 'length of a turn', Number, 2)
    .option('--postgres <folder>', 'folder of the Postgres programs; by default those of the npm package')
    .parse(process.argv)
    .opts<Options>();
  if (!(rounds >= 1 && seconds > 0)) throw new Error('--rounds and --seconds must be above 0');
  const store = await openStore({ citus: false, programs: postgres });
  const pool = openPool(store.url, 1);
  const prisma = openPrepared(store.url);
  const libraries: Library[] = [
    {
      name: 'pg',
      send: async (rows) =>
        (await pool.query({ name: 'given-rows', text: TEXT, values: binaryValues(rows) })).rows,
    },
    { name: 'Prisma', send: (rows) => prisma.$queryRawUnsafe<unknown[]>(TEXT, ...textValues(rows)) },
  ];
  try {
    report(await measure(libraries, { rounds, seconds }));
  } finally {
    await Promise.all([pool.end(), prisma.$disconnect()]);
    await store.stop();
  }
}

function openPrepared(url: string): PrismaClient {
  const names = new Map<string, string>();
  const statementNameGenerator = ({ sql }: { sql: string }) => {
    const name = names.get(sql) ?? createHash('sha256').update(sql).digest('hex').slice(0, 32);
    names.set(sql, name);
    return name;
  };
  return new PrismaClient({
    adapter: new PrismaPg({ connectionString: url, max: 1 }, { statementNameGenerator }),
  });
}

const binaryValues = (rows: Row[]) => [
  uuidArray(rows, ({ id }) => id),
  textArray(rows, ({ name }) => name),
  jsonArray(rows, ({ properties }) => properties),
];

const textValues = (rows: Row[]) => [
  rows.map(({ id }) => id),
  rows.map(({ name }) => name),
  rows.map(({ properties }) => JSON.stringify(properties)),
];

/** Microseconds of processor time per statement in each turn, by library and size. */
type Turns = Map<string, number[][]>;

async function measure(
  libraries: Library[],
  { rounds, seconds }: Pick<Options, 'rounds' | 'seconds'>,
): Promise<Turns> {
  const turns: Turns = new Map(libraries.map(({ name }) => [name, SIZES.map(() => [])]));
  const sets = SIZES.map((size) => Array.from({ length: size }, (_, index) => rowOf(index)));
  // The round before the first one compiles the code and prepares the statements.
  for (let round = -1; round < rounds; round++)
    for (const [index, rows] of sets.entries())
      for (const { name, send } of libraries) {
        const microseconds = await turn(rows, { send, seconds: round < 0 ? seconds / 2 : seconds });
        if (round >= 0) turns.get(name)![index]!.push(microseconds);
      }
  return turns;
}

const rowOf = (index: number): Row => ({
  id: newId(),
  name: `event ${index % 50}`,
  properties: { screen: 'home', step: index },
});

/** @throws {Error} if a statement does not return each row */
async function turn(
  rows: Row[],
  { send, seconds }: Pick<Library, 'send'> & Pick<Options, 'seconds'>,
): Promise<number> {
  const [before, end] = [process.cpuUsage(), performance.now() + seconds * 1000];
  let statements = 0;
  for (; performance.now() < end; statements++) {
    const returned = await send(rows);
    if (returned.length !== rows.length)
      throw new Error(`${returned.length} of ${rows.length} rows came back`);
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / statements;
}

function report(turns: Turns): void {
  const [pg, prisma] = ['pg', 'Prisma'].map((name) => turns.get(name)!) as [number[][], number[][]];
  process.stdout.write('| rows | pg µs | Prisma µs | difference µs |\n|---|---|---|---|\n');
  const differences = SIZES.map((size, index) => {
    const [own, other] = [pg[index]!, prisma[index]!];
    const difference = median(other.map((value, round) => value - own[round]!));
    const cells = [own, other].map(
      (all) => `${median(all).toFixed(0)} ± ${(100 * spread(all)).toFixed(0)} %`,
    );
    process.stdout.write(`| ${[size, ...cells, difference.toFixed(0)].join(' | ')} |\n`);
    return difference;
  });
  const perRow = (differences.at(-1)! - differences[0]!) / (SIZES.at(-1)! - SIZES[0]!);
  process.stdout.write(
    `Prisma: ${differences[0]!.toFixed(0)} µs more per statement with one row, and ${perRow.toFixed(2)} µs more per row\n`,
  );
}

await main();

import type { Database, Pool } from './database.ts';

/** Shard of a workspace, and how often it has moved. */
export interface Home {
  shard: number;
  moves: number;
}

const find = `
  select workspaces.id, workspaces.shard, workspaces.shard_moves as moves
  from workspaces
  where workspaces.id = any ($1::uuid[])`;

/** Returns shards by workspace. Unknown workspaces are omitted. */
export async function findHomes(pool: Pick<Pool, 'query'>, ids: string[]): Promise<Map<string, Home>> {
  const statement = { name: 'find-homes', text: find, values: [ids] };
  const { rows } = await pool.query<Home & { id: string }>(statement);
  return new Map(rows.map(({ id, ...home }) => [id, home]));
}

const move = `
  update workspaces
     set shard = $2::integer, shard_moves = $3::integer
   where workspaces.id = $1::uuid
     and workspaces.shard_moves < $3::integer`;

/** Records the new shard of a workspace, unless it has moved again since. */
export async function recordHome(
  pool: Pick<Pool, 'query'>,
  id: string,
  { shard, moves }: Home,
): Promise<void> {
  await pool.query({ name: 'record-home', text: move, values: [id, shard, moves] });
}

/** Returns the number of workspaces by shard. Shards without workspaces are omitted. */
async function countByShard({ prisma }: Pick<Database, 'prisma'>): Promise<Map<number, number>> {
  const rows = await prisma.workspace.groupBy({ by: 'shard', _count: true });
  return new Map(rows.map(({ shard, _count }) => [shard, _count]));
}

const leave = `
  with emptied as (
    select workspaces.id, row_number() over (order by workspaces.id) as place
    from workspaces
    where workspaces.shard >= $1::integer
  )
  update workspaces
     set shard = (emptied.place % $1::integer)::integer, shard_moves = workspaces.shard_moves + 1
    from emptied
   where workspaces.id = emptied.id`;

/**
 * Distributes the workspaces of removed shards over the remaining ones. Call it only while all lanes are
 * empty.
 *
 * @returns the number of moved workspaces
 */
export async function leaveShards(pool: Pick<Pool, 'query'>, shards: number): Promise<number> {
  const { rowCount } = await pool.query(leave, [shards]);
  return rowCount ?? 0;
}

/** Returns the shard with the fewest workspaces; the first one if there are several. */
export async function emptiestShard(database: Pick<Database, 'prisma'>, shards: number): Promise<number> {
  if (shards === 1) return 0;
  const counts = await countByShard(database);
  const all = Array.from({ length: shards }, (_, shard) => counts.get(shard) ?? 0);
  return all.indexOf(Math.min(...all));
}

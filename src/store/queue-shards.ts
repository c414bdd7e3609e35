import type { Pool } from './database.ts';

/** The shard of a workspace, after so many moves. */
export interface Home {
  shard: number;
  moves: number;
}

const find = `
  select workspaces.id, workspaces.shard, workspaces.shard_moves as moves
  from workspaces
  where workspaces.id = any ($1::uuid[])`;

/** By workspace; those that are none are absent. */
export async function findHomes(pool: Pick<Pool, 'query'>, ids: string[]): Promise<Map<string, Home>> {
  const asked = { name: 'find-homes', text: find, values: [ids] };
  const { rows } = await pool.query<Home & { id: string }>(asked);
  return new Map(rows.map(({ id, ...home }) => [id, home]));
}

const move = `
  update workspaces
     set shard = $2::integer, shard_moves = $3::integer
   where workspaces.id = $1::uuid
     and workspaces.shard_moves < $3::integer`;

/** Writes down where a workspace has moved; of one that has moved again since, nothing. */
export async function recordHome(
  pool: Pick<Pool, 'query'>,
  id: string,
  { shard, moves }: Home,
): Promise<void> {
  await pool.query({ name: 'record-home', text: move, values: [id, shard, moves] });
}

const count = `
  select workspaces.shard, count(*)::integer as workspaces
  from workspaces
  group by workspaces.shard
  order by workspaces.shard`;

/** Workspaces by shard; shards without any are absent. */
export async function countByShard(pool: Pick<Pool, 'query'>): Promise<Map<number, number>> {
  const { rows } = await pool.query<{ shard: number; workspaces: number }>(count);
  return new Map(rows.map(({ shard, workspaces }) => [shard, workspaces]));
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

/** Spreads the workspaces of shards that are to go over those that stay; only where no lane holds anything. @returns how many */
export async function leaveShards(pool: Pick<Pool, 'query'>, shards: number): Promise<number> {
  const { rowCount } = await pool.query(leave, [shards]);
  return rowCount ?? 0;
}

/** The one that has fewest workspaces, of several the first. */
export async function emptiestShard(pool: Pick<Pool, 'query'>, shards: number): Promise<number> {
  if (shards === 1) return 0;
  const counts = await countByShard(pool);
  const all = Array.from({ length: shards }, (_, shard) => counts.get(shard) ?? 0);
  return all.indexOf(Math.min(...all));
}

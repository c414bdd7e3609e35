import type { Pool } from './database.ts';

/** The latest move of a workspace to another shard, as every process reads it. Times are ISO 8601. */
export interface WorkspaceMove {
  id: string;
  to: number;
  startedAt: string;
  /** Time at which the process that moves the workspace was last alive. */
  seenAt: string;
  /** Reason for which the move waits. */
  hindrance?: string;
  endedAt?: string;
  /** Reason for which the workspace stays in its shard. */
  failure?: string;
}

/** Seconds without a sign of life after which the process of a move is considered dead. */
export const LOST_SECONDS = 10;

/**
 * Returns SQL of a time in ISO 8601. Times have one length and one zone, so that text is compared instead of a
 * `timestamptz`: its conversion from a column is only stable, and Citus requires immutable functions of columns.
 */
const asIso = (time: string) => `to_char((${time}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** Changes one row by primary key. A running move of a living process is not replaced. */
const beginStatement = `
  update workspaces
  set shard_move = beginning.move
  from (
    select
      jsonb_build_object('id', $2::text, 'to', $3::integer, 'startedAt', ${asIso('now()')}, 'seenAt', ${asIso('now()')})
        as move,
      ${asIso(`now() - interval '${LOST_SECONDS} seconds'`)} as lost
  ) as beginning
  where workspaces.id = $1::uuid
    and (
      workspaces.shard_move is null
      or workspaces.shard_move ? 'endedAt'
      or (workspaces.shard_move ->> 'seenAt') collate "C" < beginning.lost
    )`;

/** Records the start of a move. Returns false while another process moves the workspace. */
export async function recordMoveStart(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { id, to }: Pick<WorkspaceMove, 'id' | 'to'>,
): Promise<boolean> {
  const { rowCount } = await pool.query(beginStatement, [workspaceId, id, to]);
  return rowCount === 1;
}

/** Changes one row by primary key, unless a later move has replaced the record. */
const stateStatement = `
  update workspaces
  set shard_move = workspaces.shard_move || latest.change
  from (
    select jsonb_build_object('seenAt', ${asIso('now()')}) || $3::jsonb
      || case when $4::boolean then jsonb_build_object('endedAt', ${asIso('now()')}) else '{}' end as change
  ) as latest
  where workspaces.id = $1::uuid and workspaces.shard_move ->> 'id' = $2::text`;

/** Records that the process of a move is alive, with a change of the state. */
export async function recordMoveState(
  pool: Pick<Pool, 'query'>,
  { workspaceId, id }: { workspaceId: string; id: string },
  {
    hasEnded = false,
    ...state
  }: Pick<Partial<WorkspaceMove>, 'hindrance' | 'failure'> & { hasEnded?: boolean } = {},
): Promise<void> {
  await pool.query(stateStatement, [workspaceId, id, JSON.stringify(state), hasEnded]);
}

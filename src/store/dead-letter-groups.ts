import type { Pool } from './database.ts';

/** Characters of a kind and of a reason that tell groups apart: as the index dead_letters_groups has them. */
const KIND = 'left(dead_letters.kind, 60)';
const REASON = 'left(dead_letters.reason, 120)';

/** Most groups that one workspace shows; each distinct cause is one. */
export const MAX_GROUPS = 100;

/** Most letters of a group that are counted. */
export const MAX_COUNTED = 10_000;

/** Dead letters of one workspace that wait, of one kind, whose reasons begin alike. */
export interface DeadLetterGroup {
  workspaceId: string;
  kind: string;
  reason: string;
  /** One more than MAX_COUNTED: there are more. */
  count: number;
  /** Id of the one accepted first, and of the one accepted last. */
  oldest: string;
  newest: string;
}

/**
 * By the index dead_letters_groups: each step goes to the first letter of the next group, so that it costs a look-up for
 * each group, however many letters wait. Counts stop at their bound.
 */
const selectGroupsStatement = `
  select
    wanted.workspace_id as "workspaceId", groups.kind, groups.reason, counted.count::integer,
    (
      select dead_letters.id
      from dead_letters
      where dead_letters.workspace_id = wanted.workspace_id and dead_letters.state = 'waiting'
        and ${KIND} = groups.kind and ${REASON} = groups.reason
      order by dead_letters.workspace_id, ${KIND}, ${REASON}, dead_letters.id
      limit 1) as oldest,
    (
      select dead_letters.id
      from dead_letters
      where dead_letters.workspace_id = wanted.workspace_id and dead_letters.state = 'waiting'
        and ${KIND} = groups.kind and ${REASON} = groups.reason
      order by dead_letters.workspace_id desc, ${KIND} desc, ${REASON} desc, dead_letters.id desc
      limit 1) as newest
  from unnest($1::uuid[]) as wanted (workspace_id)
  cross join lateral (
    with recursive stepped as (
      (
        select ${KIND} as kind, ${REASON} as reason
        from dead_letters
        where dead_letters.workspace_id = wanted.workspace_id and dead_letters.state = 'waiting'
        order by dead_letters.workspace_id, ${KIND}, ${REASON}
        limit 1
      )
      union all
      select following.kind, following.reason
      from stepped
      cross join lateral (
        select ${KIND} as kind, ${REASON} as reason
        from dead_letters
        where dead_letters.workspace_id = wanted.workspace_id and dead_letters.state = 'waiting'
          and (${KIND}, ${REASON}) > (stepped.kind, stepped.reason)
        order by dead_letters.workspace_id, ${KIND}, ${REASON}
        limit 1
      ) as following
    )
    select stepped.kind, stepped.reason from stepped limit ${MAX_GROUPS}
  ) as groups
  cross join lateral (
    select count(*) as count
    from (
      select dead_letters.id
      from dead_letters
      where dead_letters.workspace_id = wanted.workspace_id and dead_letters.state = 'waiting'
        and ${KIND} = groups.kind and ${REASON} = groups.reason
      order by dead_letters.workspace_id, ${KIND}, ${REASON}, dead_letters.id
      limit $2::integer + 1
    ) as letters
  ) as counted
  where counted.count > 0`;

/**
 * What waits in these workspaces, by its cause; the largest group first.
 *
 * @param most letters of a group that are counted
 */
export async function selectGroups(
  pool: Pool,
  workspaceIds: string[],
  most = MAX_COUNTED,
): Promise<DeadLetterGroup[]> {
  const { rows } = await pool.query<DeadLetterGroup>({
    name: 'select-dead-letter-groups',
    text: selectGroupsStatement,
    values: [workspaceIds, most],
  });
  return rows.sort((one, other) => other.count - one.count || (one.newest < other.newest ? 1 : -1));
}

/** By the index dead_letters_waiting, as far as its bound. */
const countWaitingStatement = `
  select count(*)::integer as count
  from (select from dead_letters where dead_letters.state = 'waiting' limit $1::integer) as waiting`;

/** How many dead letters of the installation wait for a person, up to `most`. */
export async function countWaiting(pool: Pool, most: number): Promise<number> {
  const { rows } = await pool.query<{ count: number }>({
    name: 'count-waiting-dead-letters',
    text: countWaitingStatement,
    values: [most],
  });
  return rows[0]!.count;
}

/** A dead letter as a list shows it. */
export interface ListedLetter {
  id: string;
  workspaceId: string;
  requestId: string;
  kind: string;
  reason: string;
  state: string;
  replays: number;
  failedAt: Date;
  discardedBy: string | null;
  discardReason: string | null;
}

/** The columns of a `ListedLetter`, of the view kept_dead_letters as `letters`. */
export const listedColumns = `
    letters.id, letters.workspace_id as "workspaceId", letters.request_id as "requestId", letters.kind, letters.reason,
    letters.state, letters.replays, letters.failed_at as "failedAt", letters.discarded_by as "discardedBy",
    letters.discard_reason as "discardReason"`;

/**
 * By a range of dead_letters_groups. Of those of deleted users, which are being erased, twice as many as a page has are
 * passed over.
 */
const selectOfGroupStatement = `
  select ${listedColumns}
  from (
    select dead_letters.id
    from dead_letters
    where dead_letters.workspace_id = $1::uuid and dead_letters.state = 'waiting'
      and ${KIND} = $2::text and ${REASON} = $3::text
      and dead_letters.id < $4::uuid
    order by dead_letters.workspace_id desc, ${KIND} desc, ${REASON} desc, dead_letters.id desc
    limit 2 * $5::integer
  ) as page
  join kept_dead_letters as letters on letters.id = page.id
  order by letters.id desc
  limit $5::integer`;

/** Behind every id. */
const LAST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** Which group, and which page of it. */
export interface GroupPage {
  workspaceId: string;
  kind: string;
  reason: string;
  /** Only those accepted before this one. */
  before?: string | undefined;
  limit: number;
}

/** A page of a group, the one accepted last first. */
export async function selectOfGroup(
  pool: Pool,
  { workspaceId, kind, reason, before = LAST, limit }: GroupPage,
): Promise<ListedLetter[]> {
  const { rows } = await pool.query<ListedLetter>({
    name: 'select-of-dead-letter-group',
    text: selectOfGroupStatement,
    values: [workspaceId, kind, reason, before, limit],
  });
  return rows;
}

/** By the end of each workspace's part of dead_letters_closed. */
const selectClosedStatement = `
  select ${listedColumns}
  from unnest($1::uuid[]) as wanted (workspace_id)
  cross join lateral (
    select dead_letters.id
    from dead_letters
    where dead_letters.workspace_id = wanted.workspace_id
      and dead_letters.state = $2::text and dead_letters.state in ('replaying', 'discarded')
      and dead_letters.id < $3::uuid
    order by dead_letters.workspace_id desc, dead_letters.state desc, dead_letters.id desc
    limit 2 * $4::integer
  ) as page
  join kept_dead_letters as letters on letters.id = page.id
  order by letters.id desc
  limit $4::integer`;

/** Which list of those that do not wait, and which page of it. */
export interface ClosedPage {
  state: 'replaying' | 'discarded';
  before?: string | undefined;
  limit: number;
}

/** A page of what is being replayed or was discarded in these workspaces, the one accepted last first. */
export async function selectClosed(
  pool: Pool,
  workspaceIds: string[],
  { state, before = LAST, limit }: ClosedPage,
): Promise<ListedLetter[]> {
  const { rows } = await pool.query<ListedLetter>({
    name: 'select-closed-dead-letters',
    text: selectClosedStatement,
    values: [workspaceIds, state, before, limit],
  });
  return rows;
}

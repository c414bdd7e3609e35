import { MAX_UUID, NIL_UUID } from '../platform/ids.ts';
import { takePage } from '../platform/paging.ts';
import type { Json } from '../profile/json.ts';
import { type Pool, storable } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/** Characters of the reason that identify a group. */
export const GROUP_REASON = 120;

/** Prefixes of kind and reason that identify a group, as in the index dead_letters_groups. */
export const KIND = 'left(dead_letters.kind, 60)';
const REASON = `left(dead_letters.reason, ${GROUP_REASON})`;

/** Groups per page. */
const GROUPS = 100;

/** Maximum number of groups that one page reads if reasons are filtered by their beginning. */
export const MAX_LOOKED = 1000;

/**
 * Maximum number of dead letters that one page counts: for one group, or divided evenly between all its
 * groups.
 */
const MAX_COUNTED = 5000;

/** A group of waiting dead letters of one workspace and kind, whose reasons have the same beginning. */
export interface GroupName {
  workspaceId: string;
  kind: string;
  /** First 120 characters of the reason. */
  reason: string;
}

/**
 * A group with the id of its oldest dead letter, which identifies the group where the reason must not be
 * shown.
 */
type MetGroup = GroupName & { oldest: string };

/** Number of dead letters, up to a limit. */
export interface Counted {
  count: number;
  /** Whether there are more than were counted. */
  isMore: boolean;
}

export interface DeadLetterGroup extends MetGroup, Counted {
  /** Id of the most recently accepted dead letter. */
  newest: string;
}

/**
 * Reads by the index dead_letters_groups. Each step goes to the first dead letter of the next group, so that
 * the cost is one lookup per group, however many dead letters it has. A limit stops the steps. Rows are in
 * the order of the given workspaces and the steps.
 */
const walkGroupsStatement = withCitusForm(`
  select wanted.workspace_id as "workspaceId", groups.kind, groups.reason, groups.id as oldest
  from unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) as wanted (workspace_id, kind, reason, id)
  cross join lateral (
    with recursive stepped as (
      (
        select ${KIND} as kind, ${REASON} as reason, dead_letters.id
        from dead_letters
        where dead_letters.workspace_id = wanted.workspace_id and dead_letters.state = 'waiting'
          and (${KIND}, ${REASON}, dead_letters.id) > (wanted.kind, wanted.reason, wanted.id)
        order by dead_letters.workspace_id, ${KIND}, ${REASON}, dead_letters.id
        limit 1
      )
      union all
      select following.kind, following.reason, following.id
      from stepped
      cross join lateral (
        select ${KIND} as kind, ${REASON} as reason, dead_letters.id
        from dead_letters
        where dead_letters.workspace_id = wanted.workspace_id and dead_letters.state = 'waiting'
          and (${KIND}, ${REASON}) > (stepped.kind, stepped.reason)
        order by dead_letters.workspace_id, ${KIND}, ${REASON}, dead_letters.id
        limit 1
      ) as following
      where $5::text is null or stepped.kind = $5::text
    )
    select stepped.kind, stepped.reason, stepped.id
    from stepped
    where $5::text is null or stepped.kind = $5::text
    limit $6::integer
  ) as groups
  limit $6::integer`);

/** Filter and start of a page of groups. */
interface GroupsPage {
  workspaceIds: readonly string[];
  /** Kind to filter by. */
  kind?: string | undefined;
  /** Beginning of the reason to filter by; case-insensitive. */
  beginning?: string | undefined;
  /** Last group of the previous page. */
  after?: GroupName | undefined;
}

/** Returns up to `limit` groups in the order of workspace, kind and reason. */
async function readGroups(
  pool: Pool,
  { workspaceIds, kind, after }: GroupsPage,
  limit: number,
): Promise<MetGroup[]> {
  const from = workspaceIds.filter((id) => after === undefined || id >= after.workspaceId).sort();
  const start = { kind: storable(kind ?? ''), reason: '', id: NIL_UUID };
  const met = await forEachWorkspace(pool, { given: from, workspaceOf: (id) => id }, async (some) => {
    const starts = some.map((id) => (id === after?.workspaceId ? { ...after, id: MAX_UUID } : start));
    const { rows } = await pool.query<MetGroup>({
      name: 'walk-dead-letter-groups',
      text: walkGroupsStatement,
      values: [
        some,
        ...[starts.map((one) => one.kind), starts.map((one) => one.reason), starts.map((one) => one.id)],
        ...[kind === undefined ? null : start.kind, limit],
      ],
    });
    return rows;
  });
  return met.slice(0, limit);
}

/**
 * Reads a range of dead_letters_groups for each group. Counts stop at a limit, because the index is on
 * expressions and each dead letter needs a lookup in the table.
 */
const countGroupsStatement = withCitusForm(`
  select
    named.number::integer, counted.count::integer,
    (
      select dead_letters.id
      from dead_letters
      where dead_letters.workspace_id = named.workspace_id and dead_letters.state = 'waiting'
        and ${KIND} = named.kind and ${REASON} = named.reason
      order by dead_letters.workspace_id desc, ${KIND} desc, ${REASON} desc, dead_letters.id desc
      limit 1) as newest
  from unnest($1::uuid[], $2::text[], $3::text[]) with ordinality as named (workspace_id, kind, reason, number)
  cross join lateral (
    select count(*) as count
    from (
      select dead_letters.id
      from dead_letters
      where dead_letters.workspace_id = named.workspace_id and dead_letters.state = 'waiting'
        and ${KIND} = named.kind and ${REASON} = named.reason
      order by dead_letters.workspace_id, ${KIND}, ${REASON}, dead_letters.id
      limit $4::integer + 1
    ) as letters
  ) as counted
  where counted.count > 0`);

async function countGroups<Met extends GroupName>(
  pool: Pool,
  met: readonly Met[],
): Promise<(Met & Counted & { newest: string })[]> {
  if (met.length === 0) return [];
  const limit = Math.floor(MAX_COUNTED / met.length);
  return forEachWorkspace(pool, { given: met, workspaceOf: (one) => one.workspaceId }, async (some) => {
    const { rows } = await pool.query<{ number: number; count: number; newest: string }>({
      name: 'count-dead-letter-groups',
      text: countGroupsStatement,
      values: [
        ...[some.map((one) => one.workspaceId), some.map((one) => one.kind), some.map((one) => one.reason)],
        limit,
      ],
    });
    return rows.map(({ number, count, newest }) => ({
      ...some[number - 1]!,
      ...{ count: Math.min(count, limit), isMore: count > limit, newest },
    }));
  });
}

/** Returns the number of waiting dead letters in one group, up to 5,000. */
export async function countGroup(pool: Pool, group: GroupName): Promise<Counted> {
  const [counted] = await countGroups(pool, [group]);
  return counted ?? { count: 0, isMore: false };
}

/** A page of groups and its last group. `last` is undefined if there are no further pages. */
interface GroupList {
  groups: DeadLetterGroup[];
  last: MetGroup | undefined;
}

/**
 * Returns up to 100 groups of waiting dead letters of these workspaces by cause, largest first as far as they
 * were counted. With `beginning`, reads at most MAX_LOOKED groups, because no index supports a
 * case-insensitive comparison.
 */
export async function selectGroups(pool: Pool, page: GroupsPage): Promise<GroupList> {
  const { beginning } = page;
  const limit = beginning === undefined ? GROUPS : MAX_LOOKED;
  const read = await readGroups(pool, page, limit + 1);
  const { rows: checked, next } = takePage(read, limit, (group) => group);
  const wanted =
    beginning === undefined
      ? checked
      : checked.filter(({ reason }) => reason.toLowerCase().startsWith(beginning.toLowerCase()));
  const met = takePage(wanted, GROUPS, (group) => group);
  const last = met.next ?? next ?? undefined;
  const groups = await countGroups(pool, met.rows);
  groups.sort((one, other) => other.count - one.count || (one.newest < other.newest ? 1 : -1));
  return { groups, last };
}

/** Reads by primary key. */
const findGroupStatement = `
  select dead_letters.workspace_id as "workspaceId", ${KIND} as kind, ${REASON} as reason
  from dead_letters
  where dead_letters.id = $1::uuid`;

/** Returns the group of a dead letter, or its former group if it was replayed or discarded. */
export async function findGroup(pool: Pool, id: string): Promise<GroupName | undefined> {
  const { rows } = await pool.query<GroupName>({
    name: 'find-dead-letter-group',
    text: findGroupStatement,
    values: [id],
  });
  return rows[0];
}

/** A dead letter in a list. */
export interface ListedDeadLetter {
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

/** A dead letter in the list of its group. */
export interface DeadLetterOfGroup extends ListedDeadLetter {
  /**
   * The failed object. Above LISTED_BYTES, its short members only, first the identifier, the name and the time. Null above CUT_BYTES.
   */
  object: Json;
}

/** Maximum size in bytes of an object in a list, and of an object of which its short members are listed. */
const LISTED_BYTES = 4096;
const CUT_BYTES = 262_144;

/** Maximum size in bytes of such a member, and their maximum number. */
const MEMBER_BYTES = 512;
const MAX_MEMBERS = 20;

const shortMembers = `(
      select json_object_agg(short.key, short.value)
      from (
        select member.key, member.value
        from json_each(letters.object) as member
        where octet_length(member.value::text) <= ${MEMBER_BYTES}
        order by member.key in ('identifier', 'user', 'name', 'product_id', 'time') desc
        limit ${MAX_MEMBERS}
      ) as short)`;

/** Select list of a `ListedDeadLetter`, for the view kept_dead_letters with the alias `letters`. */
export const listedColumns = `
    letters.id, letters.workspace_id as "workspaceId", letters.request_id as "requestId", letters.kind, letters.reason,
    letters.state, letters.replays, letters.failed_at as "failedAt", letters.discarded_by as "discardedBy",
    letters.discard_reason as "discardReason"`;

/**
 * Reads a range of dead_letters_groups. Reads up to twice the page size, since dead letters of deleted users
 * that are being erased are skipped.
 */
const selectOfGroupStatement = withCitusForm(`
  select ${listedColumns},
    case
      when octet_length(letters.object::text) <= ${LISTED_BYTES} then letters.object
      when octet_length(letters.object::text) <= ${CUT_BYTES} and json_typeof(letters.object) = 'object' then ${shortMembers}
    end as object
  from (
    select dead_letters.id
    from dead_letters
    where dead_letters.workspace_id = $1::uuid and dead_letters.state = 'waiting'
      and ${KIND} = $2::text and ${REASON} = $3::text
      and dead_letters.id < $4::uuid
    order by dead_letters.workspace_id desc, ${KIND} desc, ${REASON} desc, dead_letters.id desc
    limit 2 * $5::integer
  ) as page
  join kept_dead_letters as letters on letters.workspace_id = $1::uuid and letters.id = page.id
  order by letters.id desc
  limit $5::integer`);

/** A page of a group. */
interface GroupPage extends GroupName {
  /** Only dead letters accepted before this one. */
  before?: string | undefined;
  limit: number;
}

/** Returns a page of a group, most recently accepted first. */
export async function selectOfGroup(
  pool: Pool,
  { workspaceId, kind, reason, before = MAX_UUID, limit }: GroupPage,
): Promise<DeadLetterOfGroup[]> {
  const { rows } = await pool.query<DeadLetterOfGroup>({
    name: 'select-of-dead-letter-group',
    text: selectOfGroupStatement,
    values: [workspaceId, kind, reason, before, limit],
  });
  return rows;
}

import { MAX_UUID, NIL_UUID } from '../platform/ids.ts';
import { type Pool, storable } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/** Characters of a kind and of a reason that tell groups apart: as the index dead_letters_groups has them. */
export const KIND = 'left(dead_letters.kind, 60)';
const REASON = 'left(dead_letters.reason, 120)';

/** Groups of a page. */
const GROUPS = 100;

/** Groups that one page looks through where their reasons have to begin with a text. */
export const MAX_LOOKED = 1000;

/** Letters that one page counts: those of one group, or of all its groups with an even share for each. */
const MOST_COUNTED = 5000;

/** Dead letters of one workspace that wait, of one kind, whose reasons begin alike. */
export interface GroupName {
  workspaceId: string;
  kind: string;
  /** Its first 120 characters. */
  reason: string;
}

/** A group that has been met: the id of the letter accepted first stands for it where its reason may not. */
type MetGroup = GroupName & { oldest: string };

/** How many letters there are, as far as they were counted. */
export interface Counted {
  count: number;
  /** Whether there are more. */
  isMore: boolean;
}

export interface DeadLetterGroup extends MetGroup, Counted {
  /** Id of the one accepted last. */
  newest: string;
}

/**
 * By the index dead_letters_groups: each step goes to the first letter of the next group, so that it costs a look-up for
 * each group, however many letters wait. A limit stops the steps. Rows come in the order of the workspaces as they are
 * given, and of the steps.
 */
const walkGroupsStatement = `
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
  limit $6::integer`;

/** Which groups, and from where on. */
export interface GroupsPage {
  workspaceIds: readonly string[];
  /** Only those of this kind. */
  kind?: string | undefined;
  /** Only those whose reason begins so, in small or capital letters. */
  beginning?: string | undefined;
  /** Only those behind this one. */
  after?: GroupName | undefined;
}

/** In the order of workspace, kind and reason, at most `most`. */
async function walkGroups(
  pool: Pool,
  { workspaceIds, kind, after }: GroupsPage,
  most: number,
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
        ...[kind === undefined ? null : start.kind, most],
      ],
    });
    return rows;
  });
  return met.slice(0, most);
}

/**
 * By a range of dead_letters_groups for each group. Counts stop at their bound: the index is one of expressions, so that each
 * letter is looked up in the table.
 */
const countGroupsStatement = `
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
  where counted.count > 0`;

async function countGroups<Met extends GroupName>(
  pool: Pool,
  met: readonly Met[],
): Promise<(Met & Counted & { newest: string })[]> {
  if (met.length === 0) return [];
  const most = Math.floor(MOST_COUNTED / met.length);
  return forEachWorkspace(pool, { given: met, workspaceOf: (one) => one.workspaceId }, async (some) => {
    const { rows } = await pool.query<{ number: number; count: number; newest: string }>({
      name: 'count-dead-letter-groups',
      text: countGroupsStatement,
      values: [
        ...[some.map((one) => one.workspaceId), some.map((one) => one.kind), some.map((one) => one.reason)],
        most,
      ],
    });
    return rows.map(({ number, count, newest }) => ({
      ...some[number - 1]!,
      ...{ count: Math.min(count, most), isMore: count > most, newest },
    }));
  });
}

/** How many wait in one group, up to 5,000. */
export async function countGroup(pool: Pool, group: GroupName): Promise<Counted> {
  const [found] = await countGroups(pool, [group]);
  return found ?? { count: 0, isMore: false };
}

/** A page of groups, and the one behind which the next page begins; without it there are no more. */
export interface GroupList {
  groups: DeadLetterGroup[];
  last: MetGroup | undefined;
}

/**
 * What waits in these workspaces, by its cause: a hundred groups at most, the largest of them first, as far as they were
 * counted. Where reasons have to
 * begin with a text, at most MAX_LOOKED groups are looked through: no index knows them in small or capital letters.
 */
export async function selectGroups(pool: Pool, page: GroupsPage): Promise<GroupList> {
  const { beginning } = page;
  const most = beginning === undefined ? GROUPS : MAX_LOOKED;
  const walked = await walkGroups(pool, page, most + 1);
  const looked = walked.slice(0, most);
  const wanted =
    beginning === undefined
      ? looked
      : looked.filter(({ reason }) => reason.toLowerCase().startsWith(beginning.toLowerCase()));
  const met = wanted.slice(0, GROUPS);
  const last = wanted.length > GROUPS ? met.at(-1) : walked.length > most ? looked.at(-1) : undefined;
  const groups = await countGroups(pool, met);
  groups.sort((one, other) => other.count - one.count || (one.newest < other.newest ? 1 : -1));
  return { groups, last };
}

/** By primary key. */
const findGroupStatement = `
  select dead_letters.workspace_id as "workspaceId", ${KIND} as kind, ${REASON} as reason
  from dead_letters
  where dead_letters.id = $1::uuid`;

/** The group in which a dead letter is, or was before it was replayed or discarded. */
export async function findGroup(pool: Pool, id: string): Promise<GroupName | undefined> {
  const { rows } = await pool.query<GroupName>({
    name: 'find-dead-letter-group',
    text: findGroupStatement,
    values: [id],
  });
  return rows[0];
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
  join kept_dead_letters as letters on letters.workspace_id = $1::uuid and letters.id = page.id
  order by letters.id desc
  limit $5::integer`;

/** Which group, and which page of it. */
export interface GroupPage extends GroupName {
  /** Only those accepted before this one. */
  before?: string | undefined;
  limit: number;
}

/** A page of a group, the one accepted last first. */
export async function selectOfGroup(
  pool: Pool,
  { workspaceId, kind, reason, before = MAX_UUID, limit }: GroupPage,
): Promise<ListedLetter[]> {
  const { rows } = await pool.query<ListedLetter>({
    name: 'select-of-dead-letter-group',
    text: selectOfGroupStatement,
    values: [workspaceId, kind, reason, before, limit],
  });
  return rows;
}

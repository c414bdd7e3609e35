import { grouped } from '../../platform/format.ts';
import { html, type Part } from '../../platform/html.ts';
import { millisecondsOf } from '../../platform/ids.ts';
import { takePage } from '../../platform/paging.ts';
import { toServiceId } from '../../profile/identifier.ts';
import { meaningOf } from '../../profile/refusal.ts';
import { isUuid } from '../../profile/values.ts';
import type { AttributesChange } from '../../store/attribute-changes.ts';
import { searchAudit } from '../../store/audit-list.ts';
import type { Connection, Pool } from '../../store/database.ts';
import { type LetterOfUser, selectDeadLettersOfUser } from '../../store/named-failures.ts';
import { type NamedUntil, type RefusalOfUser, selectRefusedOfUser } from '../../store/refused-of-users.ts';
import { type HistoryRow, type HistorySubject, readHistory } from '../../store/subscription-history.ts';
import { GLOBAL } from '../../store/subscription-states.ts';
import {
  type ActivityKey,
  type ActivityKind,
  type MergedProfile,
  readActivity,
  readActivityKeys,
  selectAttributeChanges,
  type TimelineEntry,
} from '../../store/timeline.ts';
import type { Viewer } from '../access.ts';
import { PageError } from '../console.ts';
import { badge, count, empty, MASK, mayOpen, moment, nextPage, pathWith, table, tree } from '../layout.ts';
import { money } from '../money.ts';
import { asSeenBy } from './audit.ts';
import type { Seen } from './find-user.ts';
import { shownExternalId } from './users.ts';

/** Entries of the timeline per page. */
const PAGE = 50;

/**
 * Maximum number of events and purchases that one part of the timeline has. They are stored in the order of acceptance,
 * and each part is sorted by the time at which they happened.
 */
const MAX_PART = 2000;

/** Maximum number of events and purchases that a part reads, over all profiles that were merged into the user. */
const MAX_READ = 20_000;

/** Maximum number of changes of subscriptions, and of dead letters, in the timeline. */
const MAX_CHANGES = 500;
const MAX_LETTERS = 100;

/** Maximum number of property members shown per entry. */
const MAX_NODES = 40;

/** Filters by kind, by their name in the URL. */
const kinds = [
  ['', 'All'],
  ['events', 'Events'],
  ['purchases', 'Purchases'],
  ['attributes', 'Attributes'],
  ['subscriptions', 'Subscriptions'],
  ['identity', 'Merges and ids'],
  ['refused', 'Refused objects'],
  ['failed', 'Failed objects'],
] as const;

/** An entry at a time in epoch milliseconds. `tie` orders entries of one time and identifies the entry. */
type Entry = { at: number; tie: string } & (
  | { key: ActivityKey }
  | { change: HistoryRow }
  | { merged: MergedProfile }
  | { renamed: RenamedId }
  | { letter: LetterOfUser }
  | { changed: AttributesChange }
  | { refused: RefusalOfUser }
);

interface RenamedId {
  externalId: string;
  renamedAt: Date;
}

interface Wanted {
  seen: Seen;
  /** The user, and the profiles that were merged into the user. */
  owners: string[];
  subjects: HistorySubject[];
  merged: MergedProfile[];
  renamed: RenamedId[];
  /** Names under which dead letters about the user are stored. */
  names: string[];
  /** Identifiers under which refused objects are stored. */
  identifiers: NamedUntil[];
  query(name: string): string;
}

/** Entries of the timeline, and the query of its next page. */
interface TimelinePart {
  shown: Entry[];
  activity: Map<string, TimelineEntry>;
  next: Record<string, string | undefined> | undefined;
  /** Whether the user has more activity than one part. */
  cut: boolean;
}

/** Reads a page of what happened to a user, last first. */
export async function readTimeline(
  connection: Pick<Connection, 'query'>,
  wanted: Wanted,
): Promise<TimelinePart> {
  const { query, seen } = wanted;
  const kind = query('kind');
  if (!kinds.some(([name]) => name === kind))
    throw new PageError(
      404,
      `Unknown kind. Choose one of: ${kinds.map(([name]) => name || 'all').join(', ')}.`,
    );
  const { shown, next, cut } = await readPage(connection, wanted, kind);
  const activity = await readActivity(
    connection,
    seen.workspace.id,
    shown.flatMap((entry) => ('key' in entry ? entry.key : [])),
  );
  return { shown, activity, next, cut };
}

interface TimelinePlace {
  seen: Seen;
  viewer: Viewer;
  /** Path of the page without a query. */
  path: string;
  /** Users of the console who made changes, by the id of the request. */
  authors: Map<string, string>;
  query(name: string): string;
}

/** Maximum number of audit entries of a user among which authors are found. */
const MAX_AUDIT = 500;

/** Reads the users of the console who made the shown changes, from the latest audit entries of the user. */
export async function readAuthors(
  pool: Pool,
  { seen: { id, workspace }, viewer }: { seen: Seen; viewer: Viewer },
  { shown }: TimelinePart,
): Promise<Map<string, string>> {
  if (!shown.some((entry) => 'change' in entry || 'changed' in entry)) return new Map();
  const { rows } = await searchAudit(pool, { subject: toServiceId(id), limit: MAX_AUDIT });
  return new Map(
    rows.flatMap((row) => {
      const { workspaceId, via, actorName, detail } = asSeenBy(viewer, row);
      return via === 'console' && workspaceId === workspace.id && typeof detail.request_id === 'string'
        ? [[detail.request_id, actorName] as const]
        : [];
    }),
  );
}

/** Renders a page of what happened to a user. */
export function timeline(
  { shown, activity, next, cut }: TimelinePart,
  { query, path, seen, viewer, authors }: TimelinePlace,
): Part {
  const kind = query('kind');
  const rows = shown.flatMap((entry) => {
    const row = rowOf(entry, {
      ...{ activity, authors, pii: seen.pii, viewer, workspaceId: seen.workspace.id },
      user: toServiceId(seen.id),
    });
    return row ? [row] : [];
  });
  const self = { workspace: query('workspace'), kind };
  return html`<nav class="tabs" aria-label="Kinds">${kinds.map(
    ([name, text]) =>
      html`<a class="tab" href="${pathWith(path, { ...self, kind: name })}#timeline"${name === kind && html` aria-current="page"`}>${text}</a>`,
  )}</nav>
${
  rows.length === 0
    ? empty(
        'Nothing here',
        'Events, purchases, changes of attributes and subscriptions, merges, and refused and failed objects appear here.',
      )
    : table('Timeline', ['Happened', 'What', 'Details'], rows)
}${next && nextPage(path, { ...self, ...next })}
<p class="faint pager">Sorted by the time at which it happened${cut && html`, within the ${grouped(MAX_PART)} events and purchases that were accepted last before it`}. Point at a time to see when it was accepted. The latest changes of attributes are kept, and refused objects of 30 days.${mayOpen(viewer, '/refused-objects') && html` <a href="/refused-objects">Refused objects</a> lists the causes of all users.`}</p>`;
}

/** Reads a page of entries and the query of the next page. `cut`: the user has more activity than one part. */
async function readPage(pool: Pick<Connection, 'query'>, wanted: Wanted, kind: string) {
  const { seen, owners, subjects, query } = wanted;
  const workspaceId = seen.workspace.id;
  const isWanted = (name: string) => kind === '' || kind === name;
  const before = isUuid(query('part')) ? query('part') : undefined;
  const limit = Math.min(MAX_PART, Math.max(PAGE, Math.floor(MAX_READ / owners.length)));
  const active: ActivityKind[] = [
    ...(isWanted('events') ? (['event'] as const) : []),
    ...(isWanted('purchases') ? (['purchase'] as const) : []),
  ];
  const [activityKeys, changes, letters, changed, refused] = await Promise.all([
    active.length === 0
      ? []
      : readActivityKeys(pool, { workspaceId, owners, kinds: active, before, limit: limit + 1 }),
    isWanted('subscriptions') ? readHistory(pool, workspaceId, { subjects, limit: MAX_CHANGES }) : [],
    isWanted('failed')
      ? selectDeadLettersOfUser(pool, workspaceId, { names: wanted.names, limit: MAX_LETTERS })
      : [],
    isWanted('attributes') ? selectAttributeChanges(pool, workspaceId, seen.id) : [],
    isWanted('refused') ? selectRefusedOfUser(pool, workspaceId, wanted.identifiers) : [],
  ]);
  const { rows: keys, next: part } = takePage(activityKeys, limit, ({ id }) => id);
  // Other entries belong to the part in whose range of acceptance they are.
  const [from, to] = [
    part !== null ? millisecondsOf(part) : Number.NEGATIVE_INFINITY,
    before === undefined ? Number.POSITIVE_INFINITY : millisecondsOf(before),
  ];
  const others: Entry[] = [
    ...changes.map((change) => ({ at: change.at.getTime(), tie: `s${change.id.padStart(19, '0')}`, change })),
    ...letters.map((letter) => ({ at: letter.failedAt.getTime(), tie: `f${letter.id}`, letter })),
    ...changed.map((change, index) => ({
      ...{
        at: change.at.getTime(),
        tie: `a${String(changed.length - index).padStart(6, '0')}`,
        changed: change,
      },
    })),
    ...refused.map((object) => ({
      at: millisecondsOf(object.requestId),
      tie: tieOf(object),
      refused: object,
    })),
    ...(isWanted('identity')
      ? [
          ...wanted.merged.map((merged) => ({ at: merged.mergedAt.getTime(), tie: `m${merged.id}`, merged })),
          ...wanted.renamed.map((renamed, index) => ({
            ...{ at: renamed.renamedAt.getTime(), tie: `r${String(index).padStart(6, '0')}`, renamed },
          })),
        ]
      : []),
  ];
  const all: Entry[] = [
    ...keys.map((key) => ({ at: key.time.getTime(), tie: key.id, key })),
    ...others.filter(({ at }) => at >= from && at < to),
  ].sort((one, other) => other.at - one.at || (one.tie < other.tie ? 1 : -1));
  const [, at, tie] = /^(-?\d{1,16})\.([\w-]{1,40})$/.exec(query('after')) ?? [];
  const left =
    at === undefined
      ? all
      : all.filter((one) => one.at < Number(at) || (one.at === Number(at) && one.tie < tie!));
  const { rows: shown, next } = takePage(left, PAGE, (last) => ({
    part: before,
    after: `${last.at}.${last.tie}`,
  }));
  return {
    shown,
    next: next ?? (part === null ? undefined : { part }),
    cut: part !== null || before !== undefined,
  };
}

/** Identifies a refused object. The first twelve digits of the request's id are its time. */
function tieOf({ requestId, inputArray, index }: RefusalOfUser): string {
  const request = requestId.replaceAll('-', '').slice(12);
  return `x${request}-${inputArray.slice(0, 8)}-${String(99_999 - index).padStart(5, '0')}`;
}

interface Shown {
  activity: Map<string, TimelineEntry>;
  /** Users of the console who made changes, by the id of the request. */
  authors: Map<string, string>;
  pii: boolean;
  viewer: Viewer;
  workspaceId: string;
  /** Service id of the user. */
  user: string;
}

/** Renders an entry; undefined if its event was deleted meanwhile. */
function rowOf(
  entry: Entry,
  { activity, authors, pii, viewer, workspaceId, user }: Shown,
): Part[] | undefined {
  if ('key' in entry) {
    const deed = activity.get(entry.key.id);
    return deed && activityRow(deed, { pii, link: requestsLink(deed.id, { viewer, workspaceId, user }) });
  }
  const at = moment(new Date(entry.at));
  if ('change' in entry) return [at, ...changeCells(entry.change, { authors, viewer, workspaceId })];
  if ('changed' in entry) return [at, ...attributeCells(entry.changed, { authors, viewer, workspaceId })];
  if ('merged' in entry) {
    const { id, externalId } = entry.merged;
    return [
      at,
      html`${badge('merged')} another user into this one`,
      externalId === null
        ? html`service id <span class="id">${toServiceId(id)}</span>`
        : html`external id <span class="id">${shownExternalId(externalId, pii)}</span>`,
    ];
  }
  if ('renamed' in entry)
    return [
      at,
      html`${badge('external id')} replaced`,
      html`before: <span class="id">${shownExternalId(entry.renamed.externalId, pii)}</span>`,
    ];
  if ('refused' in entry) return [at, ...refusedCells(entry.refused, { viewer, workspaceId })];
  const { id, kind, reason, state } = entry.letter;
  const text = html`${badge('failed', state === 'waiting' ? 'bad' : 'calm')} <span class="wrap">${kind}</span>`;
  return [
    at,
    viewer.can('delivery', workspaceId) ? html`<a href="/dead-letters/${id}">${text}</a>` : text,
    html`<span class="wrap">${pii ? reason : MASK}</span> <span class="faint">${state}</span>`,
  ];
}

function activityRow(deed: TimelineEntry, { pii, link }: { pii: boolean; link: Part }): Part[] {
  const price = deed.kind === 'purchase' && html`${deed.quantity} × ${money(deed.price!, deed.currency!)}`;
  const inner = deed.properties;
  const size = typeof inner === 'object' && inner !== null ? Object.keys(inner).length : 0;
  return [
    moment(deed.time, { accepted: new Date(millisecondsOf(deed.id)) }),
    html`${badge(deed.kind)} <span class="wrap">${deed.name}</span>`,
    html`${price && html`<span>${price}</span> `}${
      size > 0
        ? html`<details><summary>${count(size, 'property', 'properties')}</summary>${tree(inner, { masked: !pii, most: MAX_NODES })}</details>`
        : typeof inner === 'string' && html`<span class="faint">${inner}</span>`
    }${deed.appId !== null && html`<span class="faint">app ${deed.appId}</span>`}${link}`,
  ];
}

/**
 * Renders a link to the requests of the user that arrived before an event or a purchase got its id. The first of them
 * sent it, unless it came from an import.
 */
function requestsLink(
  id: string,
  { viewer, workspaceId, user }: Pick<Shown, 'viewer' | 'workspaceId' | 'user'>,
): Part {
  if (!viewer.can('delivery', workspaceId)) return undefined;
  const path = pathWith('/requests', { workspace: workspaceId, user, before: id });
  return html` <a class="faint" href="${path}">request</a>`;
}

/** Renders a change of attributes. Names are shown to every viewer; values are not stored with the change. */
function attributeCells(
  { names, isCut, requestId }: AttributesChange,
  place: Pick<Shown, 'authors' | 'viewer' | 'workspaceId'>,
): Part[] {
  return [
    html`${badge('attributes')} ${count(names.length, 'changed', 'changed')}`,
    html`<span class="wrap">${names.join(', ')}${isCut && ' and more'}</span>${requestId !== undefined && originOf(requestId, place)}`,
  ];
}

/** Renders a refused object. Its values are not stored, and a field that may be personal data is masked when it is stored. */
function refusedCells(
  { operation, inputArray, reason, field, requestId }: RefusalOfUser,
  { viewer, workspaceId }: Pick<Shown, 'viewer' | 'workspaceId'>,
): Part[] {
  return [
    html`${badge('refused', 'bad')} <span class="wrap">${inputArray}</span> <span class="faint">${operation}</span>`,
    html`<span title="${meaningOf(reason)}">${reason}</span>${field !== '' && html` <code class="wrap">${field}</code>`} ${requestLink(requestId, { viewer, workspaceId })}`,
  ];
}

/** Renders the request that caused an entry, as a link if the viewer may open it. */
function requestLink(
  requestId: string,
  { viewer, workspaceId }: Pick<Shown, 'viewer' | 'workspaceId'>,
): Part {
  return viewer.can('delivery', workspaceId) && isUuid(requestId)
    ? html`<a class="faint" href="${pathWith(`/requests/${requestId}`, { workspace: workspaceId })}" title="${requestId}">request</a>`
    : html`<span class="faint" title="${requestId}">request</span>`;
}

/** Renders the request that caused a change, and its author if the console sent it. */
function originOf(
  requestId: string,
  { authors, ...place }: Pick<Shown, 'authors' | 'viewer' | 'workspaceId'>,
): Part {
  const author = authors.get(requestId);
  return html` ${requestLink(requestId, place)}${author !== undefined && html` <span class="faint">by ${author} in the console</span>`}`;
}

/** Renders a change of a subscription. Without a stored state, the page shows an email address as subscribed. */
function changeCells(change: HistoryRow, place: Pick<Shown, 'authors' | 'viewer' | 'workspaceId'>): Part[] {
  const unset = change.subscription === GLOBAL ? 'subscribed' : 'none';
  const what = change.subscription === GLOBAL ? 'email' : (change.group ?? change.subscription);
  return [
    html`${badge('subscription')} ${what}`,
    html`${change.from ?? unset} → ${change.to ?? unset} <span class="faint">of the ${change.kind},</span>${originOf(change.requestId, place)}`,
  ];
}

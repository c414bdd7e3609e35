import { html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import { type HistoryRow, type HistorySubject, readHistory } from '../../store/subscription-history.ts';
import { GLOBAL } from '../../store/subscription-states.ts';
import { type Deed, readTimeline } from '../../store/timeline.ts';
import type { Workspace } from '../access.ts';
import type { PageServices } from '../console.ts';
import { badge, count, empty, moment, table, tree } from '../layout.ts';

/** Entries of the timeline on a page. */
const PAGE = 50;

/** Members of properties that an entry shows: fifty of them stand on a page. */
const MOST_NODES = 40;

type Entry = { at: number; deed: Deed } | { at: number; change: HistoryRow };

interface Wanted {
  workspace: Workspace;
  owners: string[];
  subjects: HistorySubject[];
  query(name: string): string;
}

/** A page of both, by the time of their acceptance, with the places where the next one begins. */
export async function readEntries(
  { database: { pool } }: PageServices,
  { workspace, owners, subjects, query }: Wanted,
) {
  const [before, changedBefore] = [query('before'), query('changed_before')];
  const limit = PAGE + 1;
  const [deeds, changes] = await Promise.all([
    readTimeline(pool, {
      workspaceId: workspace.id,
      owners,
      limit,
      before: isUuid(before) ? before : undefined,
    }),
    readHistory(pool, workspace.id, {
      subjects,
      limit,
      before: /^\d{1,18}$/.test(changedBefore) ? changedBefore : undefined,
    }),
  ]);
  const all: Entry[] = [
    ...deeds.map((deed) => ({ at: Number.parseInt(deed.id.replaceAll('-', '').slice(0, 12), 16), deed })),
    ...changes.map((change) => ({ at: change.at.getTime(), change })),
  ];
  const shown = all.sort((one, other) => other.at - one.at).slice(0, PAGE);
  const lastDeed = shown.findLast((entry) => 'deed' in entry);
  const lastChange = shown.findLast((entry) => 'change' in entry);
  const next = all.length > PAGE && {
    before: lastDeed && 'deed' in lastDeed ? lastDeed.deed.id : before,
    changed_before: lastChange && 'change' in lastChange ? lastChange.change.id : changedBefore,
  };
  return { shown, next: next || undefined };
}

export function timeline(entries: Entry[], pii: boolean): Part {
  if (entries.length === 0)
    return empty(
      'Nothing yet',
      html`Events, purchases and changes of subscriptions stand here, those accepted last first. Send some to <code>POST /users/track</code>.`,
    );
  return table(
    'Timeline',
    ['Accepted', 'What', 'Happened', 'Details'],
    entries.map((entry) => ('deed' in entry ? deedRow(entry, pii) : changeRow(entry))),
  );
}

function deedRow({ at, deed }: { at: number; deed: Deed }, pii: boolean): Part[] {
  const price = deed.kind === 'purchase' && `${deed.quantity} × ${deed.price} ${deed.currency}`;
  const inner = deed.properties;
  const size = typeof inner === 'object' && inner !== null ? Object.keys(inner).length : 0;
  return [
    moment(new Date(at)),
    html`${badge(deed.kind)} <span class="wrap">${deed.name}</span>`,
    moment(deed.time),
    html`${price && html`<span>${price}</span> `}${
      size > 0
        ? html`<details><summary>${count(size, 'property', 'properties')}</summary>${tree(inner, { masked: !pii, most: MOST_NODES })}</details>`
        : typeof inner === 'string' && html`<span class="faint">${inner}</span>`
    }${deed.appId !== null && html`<span class="faint">app ${deed.appId}</span>`}`,
  ];
}

function changeRow({ at, change }: { at: number; change: HistoryRow }): Part[] {
  const what = change.subscription === GLOBAL ? 'email' : (change.group ?? change.subscription);
  return [
    moment(new Date(at)),
    html`${badge('change')} ${what}`,
    '',
    html`${change.from ?? 'none'} → ${change.to ?? 'none'} <span class="faint">of the ${change.kind}, request <span class="id">${change.requestId}</span></span>`,
  ];
}

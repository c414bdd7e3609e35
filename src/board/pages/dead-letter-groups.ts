import { createHash } from 'node:crypto';
import { type Html, html, type Part } from '../../platform/html.ts';
import { isUuid } from '../../profile/values.ts';
import {
  type Counted,
  type DeadLetterGroup,
  findGroup,
  type GroupName,
  MAX_LOOKED,
  selectGroups,
} from '../../store/dead-letter-groups.ts';
import type { Workspace } from '../access.ts';
import { lacking, type PageServices, Sorry, type Visit } from '../console.ts';
import { count, empty, MASK, moment, nextPage, pathWith, table, workspaceChoice } from '../layout.ts';

/**
 * Names a group in an address without telling its reason, which may quote a value: by a letter of it. The digest tells
 * when this one has come to be in another group, so that nobody replays or discards what was not shown.
 */
const keyOf = ({ oldest, ...name }: GroupName & { oldest: string }) => `${oldest}.${digestOf(name)}`;

const digestOf = ({ kind, reason }: GroupName) =>
  createHash('sha256').update(`${kind}\0${reason}`).digest('hex').slice(0, 16);

/** Characters of a reason that are told apart: what it is asked to begin with has no more. */
const MOST_OF_BEGINNING = 120;

/** All are chosen by kind; what waits by how its reason begins, too, where a reason is shown at all. */
export function filters(
  { viewer, workspaces, query }: Visit<PageServices>,
  { chosen, state }: { chosen: Workspace | undefined; state: string },
): Part {
  const waits = state === '';
  const mayRead = (chosen ? [chosen] : workspaces).some(({ id }) => viewer.can('pii', id));
  return html`<form class="row" method="get" action="/dead-letters">${workspaceChoice(workspaces, chosen)}
<label>Kind <input name="kind" value="${query('kind')}" maxlength="60" autocomplete="off"></label>
${waits && mayRead && html`<label>Reason begins with <input name="reason" value="${query('reason')}" maxlength="${MOST_OF_BEGINNING}" autocomplete="off"></label>`}
<input type="hidden" name="state" value="${state}"><button>Show</button></form>`;
}

/** What waits, by its cause. */
export async function groupsOf(
  visit: Visit<PageServices>,
  chosen: Workspace | undefined,
  ids: string[],
): Promise<Part> {
  const { services, viewer, query } = visit;
  const [kind, beginning, key] = ['kind', 'reason', 'after'].map((name) => query(name) || undefined);
  if (beginning !== undefined && beginning.length > MOST_OF_BEGINNING)
    throw new Sorry(400, `'reason' has at most ${MOST_OF_BEGINNING} characters.`);
  // A search confirms nothing that the page would mask.
  const workspaceIds = beginning === undefined ? ids : ids.filter((id) => viewer.can('pii', id));
  if (workspaceIds.length === 0) throw lacking('pii');
  const after = key === undefined ? undefined : await groupOf(visit, ids, key);
  if (key !== undefined && after === undefined)
    throw new Sorry(404, 'The group behind which this page begins has changed. Begin with the first page.');
  const { groups, last } = await selectGroups(services.database.pool, {
    ...{ workspaceIds, kind, beginning, after },
  });
  const next =
    last &&
    nextPage('/dead-letters', { workspace: chosen?.id, kind, reason: beginning, after: keyOf(last) }, 'More');
  if (groups.length > 0) return html`${groupTable(groups, visit)}${next}`;
  if (last)
    return html`${empty('None so far', `Of the ${MAX_LOOKED} groups that were looked through none begins so. “More” goes on behind them.`)}${next}`;
  if (kind !== undefined || beginning !== undefined || after !== undefined)
    return empty('None', 'Nothing else waits whose kind and reason are these.');
  return empty(
    'Nothing waits for you',
    'Everything that was accepted has been applied, or is on its way. What fails appears here with its reason.',
  );
}

/** @returns undefined where the key is of no group of these workspaces, or its letter has come to be in another */
export async function groupOf(
  { services }: Pick<Visit<PageServices>, 'services'>,
  workspaceIds: readonly string[],
  key: string,
): Promise<GroupName | undefined> {
  const [id = '', digest] = key.split('.');
  const found = isUuid(id) ? await findGroup(services.database.pool, id) : undefined;
  return found && workspaceIds.includes(found.workspaceId) && digestOf(found) === digest ? found : undefined;
}

/** More than are counted are told as such. */
export const counted = ({ count: number, isMore }: Counted) =>
  `${isMore ? 'more than ' : ''}${count(number, '', '').trim()}`;

function groupTable(groups: DeadLetterGroup[], { viewer, workspaces }: Visit<PageServices>): Html {
  const names = new Map(workspaces.map(({ id, name }) => [id, name]));
  const several = workspaces.length > 1;
  const rows = groups.map(({ workspaceId, kind, reason, oldest, newest, ...number }) => [
    html`<a href="${pathWith('/dead-letters', { workspace: workspaceId, group: keyOf({ workspaceId, kind, reason, oldest }) })}">${viewer.can('pii', workspaceId) ? reason : `${kind} ${MASK}`}</a>`,
    html`<code>${kind}</code>`,
    ...(several ? [names.get(workspaceId)] : []),
    counted(number),
    moment(timeOf(oldest)),
    moment(timeOf(newest)),
  ]);
  return html`<h2>By reason</h2>${table(
    'Dead letters by reason',
    [
      'Reason',
      'Kind',
      ...(several ? ['Workspace'] : []),
      { name: 'Letters', number: true as const },
      'First accepted',
      'Last accepted',
    ],
    rows,
  )}`;
}

/** An id of ours begins with its time. */
function timeOf(id: string): Date {
  return new Date(Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16));
}

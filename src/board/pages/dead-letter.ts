import { createHash } from 'node:crypto';
import { now } from '../../platform/clock.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { millisecondsOf } from '../../platform/ids.ts';
import type { Json } from '../../profile/json.ts';
import { isUuid } from '../../profile/values.ts';
import { fixAndReplay, MAX_FIXED_BYTES, NotFixed, replayDeadLetters } from '../../queue/dead-letters.ts';
import { deadLetterColumns, discardFields } from '../../resources/dead-letters.ts';
import { searchAudit } from '../../store/audit-list.ts';
import type { Pool } from '../../store/database.ts';
import { discardDeadLetters, readDeadLetter, type WholeDeadLetter } from '../../store/dead-letter-actions.ts';
import {
  type Counted,
  type DeadLetterGroup,
  findGroup,
  GROUP_REASON,
  type GroupName,
  MAX_LOOKED,
  selectGroups,
} from '../../store/dead-letter-groups.ts';
import { selectDeadLetters } from '../../store/dead-letters.ts';
import type { Workspace } from '../access.ts';
import { lacking, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import {
  count,
  cutAtWord,
  empty,
  facts,
  MASK,
  moment,
  nextPage,
  pathWith,
  table,
  tree,
  workspaceChoice,
} from '../layout.ts';
import { formFields, readForm, type Sent } from '../resource-form.ts';
import { describedFacts } from '../resource-pages.ts';
import { fieldLabel, fieldName, isNamed, type Leaf, leavesOf, readLike, withValues } from './failed-field.ts';

/** Maximum form size in bytes for a corrected object. URL encoding can triple each byte. */
const FORM_BYTES = 3 * MAX_FIXED_BYTES + 65_536;

interface Found {
  letter: WholeDeadLetter;
  workspace: Workspace;
}

/** @throws {PageError} if no workspace of the viewer contains the dead letter */
async function findLetter({ services, findWorkspace, params }: Visit<PageServices>): Promise<Found> {
  const id = params.id ?? '';
  const letter = isUuid(id) ? await readDeadLetter(services.database.pool, id, MAX_FIXED_BYTES) : undefined;
  const workspace = letter && (await findWorkspace(letter.workspaceId));
  if (!letter || !workspace) throw new PageError(404, 'Dead letter not found in your workspaces.');
  return { letter, workspace };
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/dead-letters/:id',
  right: 'delivery',
  async handle(visit) {
    const selected = await findLetter(visit);
    const { letter } = selected;
    const done = visit.query('done');
    const replay = await replayOf(visit, letter);
    return {
      ...{ title: 'Dead letter', body: letterPage(visit, selected, { replay }) },
      ...(replay.refresh !== undefined && { refresh: replay.refresh }),
      ...(replayNotices.includes(done) && {
        notice: letter.state === 'replayed' ? 'Replayed. The object was applied.' : undefined,
      }),
    };
  },
};

/** Values of `?done=` after a replay. The page then shows the state of the replay. */
const replayNotices = ['replayed', 'mended'];

/** Seconds for which the page loads again during a replay, and seconds between two loads. */
const FOLLOWED_SECONDS = 20;
const REFRESH_SECONDS = 2;

/** The state of a replay. */
interface Replay {
  banner?: Part;
  refresh?: number;
}

async function replayOf(
  { services, query }: Visit<PageServices>,
  { id, state }: WholeDeadLetter,
): Promise<Replay> {
  if (state === 'waiting' && replayNotices.includes(query('done')))
    return {
      banner: html`<p class="banner bad" role="alert">The replay failed again. The reason is below.</p>`,
    };
  if (state !== 'replaying') return {};
  // The audit has the start of a replay.
  const { rows } = await searchAudit(services.database.pool, {
    ...{ subject: id, action: 'dead_letters.replay', limit: 1 },
  });
  const begun = rows[0]?.at;
  const isYoung = begun !== undefined && now() - begun.getTime() < FOLLOWED_SECONDS * 1000;
  const what = html`${query('done') === 'mended' ? 'Replaced and enqueued again.' : 'Enqueued again.'} The object is being replayed${begun && html` since ${moment(begun)}`}.`;
  const next = isYoung
    ? html`The page updates itself for ${FOLLOWED_SECONDS} s. Without script, <a href="/dead-letters/${id}">reload it</a>.`
    : html`<a href="/dead-letters/${id}">Reload the page</a>. If the state stays, <code>penstock dead-letters replay ${id}</code> enqueues the object once more.`;
  return {
    banner: html`<p class="banner warn" role="status">${what} ${next}</p>`,
    ...(isYoung && { refresh: REFRESH_SECONDS }),
  };
}

/** Rejected input, which the page shows again, and the state of a replay. */
interface Rejected {
  correction?: { text: string; problem: string };
  discard?: Sent;
  replay?: Replay;
}

function letterPage(
  { viewer }: Visit<PageServices>,
  { letter, workspace }: Found,
  { correction, discard, replay }: Rejected = {},
): Html {
  const pii = viewer.can('pii', workspace.id);
  const mayChange = viewer.can('change', workspace.id) && letter.state === 'waiting';
  const isEarlier = ['replaying', 'replayed'].includes(letter.state);
  return html`<h1>Dead letter <span class="id">${letter.id}</span></h1>
${correction && html`<p class="banner bad" role="alert">${correction.problem}. The dead letter was not changed.</p>`}
${replay?.banner}
<p class="lead wrap">${isEarlier && 'Earlier reason: '}${pii ? letter.reason : MASK}</p>
<div class="card">${describedFacts(deadLetterColumns, { ...letter, workspace: workspace.name })}${facts([
    [
      'Request',
      html`<a class="id" href="${pathWith(`/requests/${encodeURIComponent(letter.requestId)}`, { workspace: workspace.id })}">${letter.requestId}</a>`,
    ],
  ])}</div>
${
  mayChange &&
  html`<div class="actions"><form method="post" action="/dead-letters/${letter.id}"><button class="main" name="action" value="replay">Replay</button></form></div>`
}
<h2>Object</h2>${objectOf(letter, pii)}
${mayChange && pii && letter.object !== null && mendForm(letter, correction?.text)}
${
  mayChange &&
  html`<h2 id="discard">Discard</h2><p class="lead">For an object that can never be applied. It is kept with your reason, and cannot be replayed.</p>
<form class="stack" method="post" action="/dead-letters/${letter.id}#discard">${formFields(discardFields, { id: 'discard', sent: discard })}
<p class="actions"><button class="danger" name="action" value="discard">Discard</button></p></form>`
}`;
}

function objectOf({ object, bytes }: WholeDeadLetter, pii: boolean): Part {
  if (object === null)
    return html`<p class="faint">The object has ${count(bytes, 'byte')}; <code>penstock dead-letters show</code> prints it.</p>`;
  return html`<div class="card">${tree(JSON.parse(object) as Json, { masked: !pii })}</div>`;
}

function mendForm({ id, object, reason }: WholeDeadLetter, given: string | undefined): Html {
  const leaves = leavesIn({ object, reason });
  const json = html`<form class="stack" method="post" action="/dead-letters/${id}"><label>JSON <textarea name="object" spellcheck="false" autocomplete="off">${given ?? legible(object!)}</textarea></label>
<p class="actions"><button${leaves.length === 0 && html` class="main"`} name="action" value="mend">Save and replay</button></p></form>`;
  return html`<h2>Correct and replay</h2>
<p class="lead">The kind of the object stays, and the original is kept.</p>
${
  leaves.length > 0 &&
  html`<form class="stack card" method="post" action="/dead-letters/${id}">${leaves.map(
    (leaf) =>
      html`<label>${fieldLabel(leaf)}${isNamed(leaf, reason) && html` <strong class="problem">named in the reason</strong>`} <input name="${fieldName(leaf)}" value="${String(leaf.value ?? '')}" autocomplete="off"></label>`,
  )}
<p class="actions"><button class="main" name="action" value="mend_fields">Save and replay</button></p></form>`
}
${leaves.length > 0 ? html`<details${given !== undefined && html` open`}><summary>Edit the whole object as JSON</summary>${json}</details>` : json}`;
}

/** Matches digits and exponents that a parsed number may not keep. */
const LONG_NUMBER = /\d{16}|[eE][+-]?\d{3}/;

/** Matches a string of a JSON text, in which digits are no number. */
const STRING = /"(?:[^"\\]|\\.)*"/g;

/** Returns the values for the form; none if parsing could change a number of the object. */
function leavesIn({ object, reason }: Pick<WholeDeadLetter, 'object' | 'reason'>): Leaf[] {
  if (object === null || object.length > MAX_INDENTED_LENGTH || LONG_NUMBER.test(object.replace(STRING, '')))
    return [];
  const value = JSON.parse(object) as Json;
  return leavesOf(value, reason);
}

/** Returns the object with the values of the form. */
function mendedText({ object, reason }: WholeDeadLetter, fields: Visit<PageServices>['fields']): string {
  const changed = leavesIn({ object, reason }).flatMap((leaf) => {
    const [text] = fields(fieldName(leaf));
    return text === undefined ? [] : [{ ...leaf, value: readLike(text, leaf.value) }];
  });
  if (changed.length === 0) throw new PageError(400, 'The form has no field of this dead letter.');
  return JSON.stringify(withValues(JSON.parse(object!) as Json, changed));
}

/**
 * Maximum length in characters of an object that is indented. Deep nesting can make indented text a thousand times
 * longer.
 */
const MAX_INDENTED_LENGTH = 65_536;

/** Indents JSON, unless parsing would change it: a number with many digits would lose precision. */
function legible(text: string): string {
  if (text.length > MAX_INDENTED_LENGTH) return text;
  const value = JSON.parse(text);
  return JSON.stringify(value) === text ? JSON.stringify(value, undefined, 2) : text;
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/dead-letters/:id',
  right: 'change',
  maxBytes: FORM_BYTES,
  async handle(visit) {
    const { services, viewer, actor, field } = visit;
    const selected = await findLetter(visit);
    const { id, workspaceId } = selected.letter;
    if (!viewer.can('delivery', workspaceId)) throw lacking('delivery');
    const { database, producer, config } = services;
    const context = { database, producer, lanes: config.LANES, actor };
    const back = (done: string) => ({ to: pathWith(`/dead-letters/${id}`, { done }) });
    switch (field('action')) {
      case 'replay':
        return back((await replayDeadLetters(context, [id])).enqueued.length > 0 ? 'replayed' : 'nothing');
      case 'discard': {
        const { values, ...sent } = readForm(visit, discardFields);
        if (Object.keys(sent.problems).length > 0) {
          const body = letterPage(visit, selected, { discard: sent });
          return { title: 'Dead letter', status: 400, body };
        }
        const discard = { by: viewer.user, reason: String(values.why), actor };
        return back(
          (await discardDeadLetters(database.pool, [id], discard)).length > 0 ? 'discarded' : 'nothing',
        );
      }
      case 'mend':
      case 'mend_fields': {
        if (!viewer.can('pii', workspaceId)) throw lacking('pii');
        const text = field('action') === 'mend' ? field('object') : mendedText(selected.letter, visit.fields);
        try {
          await fixAndReplay(context, id, { text, by: viewer.user });
          return back('mended');
        } catch (error) {
          if (!(error instanceof NotFixed)) throw error;
          const body = letterPage(visit, selected, { correction: { text, problem: error.message } });
          return { title: 'Dead letter', status: 400, body };
        }
      }
      default:
        throw new PageError(400, "'action' must be replay, mend, mend_fields or discard.");
    }
  },
};

export const deadLetterPages = [show, act];

/**
 * Identifies a group in a URL by one of its dead letters, because the reason may quote a value. The digest detects that
 * this dead letter has moved to another group, so that an operator cannot replay or discard dead letters that were not
 * shown.
 */
const keyOf = ({ oldest, ...name }: GroupName & { oldest: string }) => `${oldest}.${digestOf(name)}`;

const digestOf = ({ kind, reason }: GroupName) =>
  createHash('sha256').update(`${kind}\0${reason}`).digest('hex').slice(0, 16);

/**
 * Maximum length in characters of the filter on the start of a reason. Further characters of a reason are not
 * distinguished.
 */
const MAX_REASON_PREFIX = 120;

/**
 * Renders the filters: the kind, and for waiting dead letters also the start of the reason if the viewer may see
 * reasons.
 */
export function filters(
  { viewer, workspaces, query }: Visit<PageServices>,
  { chosen, state }: { chosen: Workspace | undefined; state: string },
): Part {
  const waits = state === '';
  const mayRead = (chosen ? [chosen] : workspaces).some(({ id }) => viewer.can('pii', id));
  return html`<form class="row" method="get" action="/dead-letters">${workspaceChoice(workspaces, chosen)}
<label>Kind <input name="kind" value="${query('kind')}" maxlength="60" autocomplete="off"></label>
${waits && mayRead && html`<label>Reason begins with <input name="reason" value="${query('reason')}" maxlength="${MAX_REASON_PREFIX}" autocomplete="off"></label>`}
<input type="hidden" name="state" value="${state}"><button>Show</button></form>`;
}

/** Renders the waiting dead letters, grouped by reason. */
export async function groupsOf(
  visit: Visit<PageServices>,
  chosen: Workspace | undefined,
  ids: string[],
): Promise<Part> {
  const { services, viewer, query } = visit;
  const [kind, beginning, key] = ['kind', 'reason', 'after'].map((name) => query(name) || undefined);
  if (beginning !== undefined && beginning.length > MAX_REASON_PREFIX)
    throw new PageError(400, `'reason' must have at most ${MAX_REASON_PREFIX} characters.`);
  // A search must not confirm a reason that the page would mask.
  const workspaceIds = beginning === undefined ? ids : ids.filter((id) => viewer.can('pii', id));
  if (workspaceIds.length === 0) throw lacking('pii');
  const after = key === undefined ? undefined : await groupOf(visit, ids, key);
  if (key !== undefined && after === undefined)
    throw new PageError(
      404,
      'The last group of the previous page has changed. Start again with the first page.',
    );
  const { groups, last } = await selectGroups(services.database.pool, {
    ...{ workspaceIds, kind, beginning, after },
  });
  const next =
    last &&
    nextPage('/dead-letters', { workspace: chosen?.id, kind, reason: beginning, after: keyOf(last) }, 'More');
  if (groups.length > 0) {
    const whole = await wholeReasons(services.database.pool, groups);
    return html`${groupTable(groups, whole, visit)}${next}`;
  }
  if (last)
    return html`${empty('None so far', `Of the ${MAX_LOOKED} groups that were looked through none begins so. “More” goes on behind them.`)}${next}`;
  if (kind !== undefined || beginning !== undefined || after !== undefined)
    return empty('None', 'No other dead letter has this kind and reason.');
  return empty(
    'No dead letters',
    'All accepted objects have been applied, or are in the queue. Objects that fail appear here with their reason.',
  );
}

/** @returns the group of a key; undefined if it is not in these workspaces or its dead letter moved to another group */
export async function groupOf(
  { services }: Pick<Visit<PageServices>, 'services'>,
  workspaceIds: readonly string[],
  key: string,
): Promise<GroupName | undefined> {
  const [id = '', digest] = key.split('.');
  const group = isUuid(id) ? await findGroup(services.database.pool, id) : undefined;
  return group && workspaceIds.includes(group.workspaceId) && digestOf(group) === digest ? group : undefined;
}

/** Formats a count, with "more than" if counting stopped early. */
export const counted = ({ count: number, isMore }: Counted) =>
  `${isMore ? 'more than ' : ''}${count(number, '', '').trim()}`;

/** Returns the whole reasons of the oldest dead letters, by their ids, for groups that have the beginning of a reason. */
export async function wholeReasons(
  pool: Pool,
  groups: readonly { oldest: string; reason: string }[],
): Promise<Map<string, string>> {
  const cut = groups.filter(({ reason }) => reason.length >= GROUP_REASON).map(({ oldest }) => oldest);
  if (cut.length === 0) return new Map();
  return new Map((await selectDeadLetters(pool, cut, 0)).map(({ id, reason }) => [id, reason]));
}

/** Renders the reason of a group: cut after a word, with the whole reason as the title. */
export function reasonText(reason: string, whole: string | undefined): Part {
  if (reason.length < GROUP_REASON || whole === reason) return reason;
  return html`<span title="${whole ?? reason}">${cutAtWord(reason)}</span>`;
}

function groupTable(
  groups: DeadLetterGroup[],
  whole: Map<string, string>,
  { viewer, workspaces }: Visit<PageServices>,
): Html {
  const names = new Map(workspaces.map(({ id, name }) => [id, name]));
  const several = workspaces.length > 1;
  const rows = groups.map(({ workspaceId, kind, reason, oldest, newest, ...number }) => [
    html`<a href="${pathWith('/dead-letters', { workspace: workspaceId, group: keyOf({ workspaceId, kind, reason, oldest }) })}">${viewer.can('pii', workspaceId) ? reasonText(reason, whole.get(oldest)) : `${kind} ${MASK}`}</a>`,
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

/** Returns the time that is encoded in an id. */
function timeOf(id: string): Date {
  return new Date(millisecondsOf(id));
}

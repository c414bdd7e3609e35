import { type Html, html, type Part } from '../../platform/html.ts';
import { takePage } from '../../platform/paging.ts';
import { isUuid } from '../../profile/values.ts';
import { replayDeadLetters } from '../../queue/dead-letters.ts';
import { deadLetterColumns, discardFields } from '../../resources/dead-letters.ts';
import { discardDeadLetters, selectClosed } from '../../store/dead-letter-actions.ts';
import {
  type Counted,
  countGroup,
  type DeadLetterOfGroup,
  type GroupName,
  type ListedDeadLetter,
  selectOfGroup,
} from '../../store/dead-letter-groups.ts';
import { selectDeadLetters } from '../../store/dead-letters.ts';
import type { Viewer, Workspace } from '../access.ts';
import { chosenWorkspace, lacking, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { brief, count, empty, MASK, moment, nextPage, pathWith, table } from '../layout.ts';
import { formFields, formProblem, readForm, type Sent } from '../resource-form.ts';
import { described } from '../resource-pages.ts';
import { counted, filters, groupOf, groupsOf, reasonText, wholeReasons } from './dead-letter.ts';
import { describeFailed, fieldLabel } from './failed-field.ts';

const PAGE = 50;

/** Maximum number of dead letters per action on a whole group. */
const MAX_PER_ACTION = 1000;

const tabs = [
  ['', 'Waiting'],
  ['replaying', 'Being replayed'],
  ['discarded', 'Discarded'],
] as const;

const list: Page<PageServices> = {
  method: 'get',
  path: '/dead-letters',
  right: 'delivery',
  handle: (visit) => listPage(visit),
};

/** @param sent a form of the group whose values were rejected */
async function listPage(visit: Visit<PageServices>, sent?: Sent): Promise<{ title: string; body: Html }> {
  const { query } = visit;
  const chosen = await chosenWorkspace(visit);
  const state = query('state');
  const content = await contentOf(visit, { chosen, state, sent });
  const body = html`<h1>Dead letters</h1>
<p class="lead">Accepted objects that could not be applied. Each is kept with its reason until it is replayed, discarded, or its user deleted.</p>
<nav class="tabs" aria-label="States">${tabs.map(
    ([name, text]) =>
      html`<a class="tab" href="${pathWith('/dead-letters', { state: name, workspace: chosen?.id })}"${name === state && html` aria-current="page"`}>${text}</a>`,
  )}</nav>
${query('group') === '' && filters(visit, { chosen, state })}
${content}`;
  return { title: 'Dead letters', body };
}

async function contentOf(
  visit: Visit<PageServices>,
  { chosen, state, sent }: { chosen: Workspace | undefined; state: string; sent: Sent | undefined },
): Promise<Part> {
  const { services, viewer, workspaces, query } = visit;
  const { pool } = services.database;
  const ids = chosen ? [chosen.id] : workspaces.map(({ id }) => id);
  const before = isUuid(query('before')) ? query('before') : undefined;
  if (state === 'replaying' || state === 'discarded') {
    const kind = query('kind') || undefined;
    const letters = await selectClosed(pool, ids, { state, kind, before, limit: PAGE + 1 });
    const { rows, next } = takePage(letters, PAGE, ({ id }) => id);
    return letters.length === 0
      ? empty(
          kind === undefined ? 'None' : 'No dead letters in this state',
          state === 'discarded'
            ? 'Discarded dead letters are kept here with the reason.'
            : 'No dead letter is being replayed.',
        )
      : html`${closedTable(viewer, rows, state)}
${next !== null && nextPage('/dead-letters', { state, kind, workspace: chosen?.id, before: next })}`;
  }
  if (state !== '') throw new PageError(404, 'Unknown state. Choose waiting, replaying or discarded.');
  if (query('group') !== '' && chosen) {
    const key = query('group');
    const group = await groupOf(visit, [chosen.id], key);
    const [letters, number] = group
      ? await Promise.all([
          selectOfGroup(pool, { ...group, before, limit: PAGE + 1 }),
          countGroup(pool, group),
        ])
      : [[], undefined];
    const [oldest = ''] = key.split('.');
    const whole = group && (await wholeReasons(pool, [{ ...group, oldest }])).get(oldest);
    return ofGroup({ viewer, workspace: chosen, key, group, whole, number, letters, before, sent });
  }
  return groupsOf(visit, chosen, ids);
}

interface OfGroup {
  viewer: Viewer;
  workspace: Workspace;
  key: string;
  /** Absent if the group's dead letter is gone or has failed again for another reason. */
  group: GroupName | undefined;
  /** Whole reason of the dead letter in the key, if the group has the beginning of it. */
  whole: string | undefined;
  number: Counted | undefined;
  letters: DeadLetterOfGroup[];
  /** Id at which the page begins. */
  before: string | undefined;
  sent: Sent | undefined;
}

function ofGroup({ viewer, workspace, key, group, whole, number, letters, before, sent }: OfGroup): Part {
  const self = { workspace: workspace.id, group: key };
  const head = html`<p><a href="${pathWith('/dead-letters', { workspace: workspace.id })}">All reasons</a></p>
${group && html`<h2 class="wrap">${viewer.can('pii', workspace.id) ? reasonText(group.reason, whole) : MASK}</h2><p class="faint">${group.kind} in ${workspace.name}${number && html` · ${counted(number)} waiting`}</p>`}`;
  if (letters.length === 0)
    return html`${head}${
      group
        ? empty('None left', 'All of this group were replayed or discarded.')
        : empty(
            'Reason not found',
            'The group has changed since the page was loaded. Choose it again from all reasons.',
          )
    }`;
  const mayChange = viewer.can('change', workspace.id);
  const pii = viewer.can('pii', workspace.id);
  const { rows: shown, next: older } = takePage(letters, PAGE, ({ id }) => id);
  const checked = new Set(sent?.given.id);
  const rows = shown.map((letter) => {
    const { user, leaf, time } = describeFailed(letter.object, letter.reason);
    return [
      ...(mayChange
        ? [
            html`<input type="checkbox" name="id" value="${letter.id}"${checked.has(letter.id) && html` checked`} aria-label="Select ${letter.id}">`,
          ]
        : []),
      userCell(viewer, { user, pii, workspace }),
      leaf === undefined
        ? ''
        : html`<code>${fieldLabel(leaf)}</code> <span class="wrap">${pii ? brief(leaf.value) : MASK}</span>`,
      time !== undefined && !Number.isNaN(Date.parse(time)) ? moment(time) : '',
      moment(letter.failedAt),
      letter.replays,
      html`<a href="/dead-letters/${letter.id}" title="${letter.id}">Open</a>`,
      html`<a href="${pathWith(`/requests/${encodeURIComponent(letter.requestId)}`, { workspace: workspace.id })}" title="${letter.requestId}">Request</a>`,
    ];
  });
  const columns = [
    ...(mayChange ? ['Select'] : []),
    ...['User', 'Value', 'Happened', 'Failed'],
    { name: 'Replays', number: true as const },
    ...['Dead letter', 'Request'],
  ];
  const listed = table('Dead letters of this reason', columns, rows);
  const next = older !== null && nextPage('/dead-letters', { ...self, before: older });
  if (!mayChange) return html`${head}${listed}${next}`;
  // Enter in the reason field activates the first button of the form, even a hidden one. Without this button it would
  // replay.
  return html`${head}<form method="post" action="/dead-letters">
<button name="action" value="discard" hidden></button>${formProblem(sent)}
${Object.entries({ ...self, ...(before !== undefined && { before }) }).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<div class="actions"><button type="button" data-check-all hidden>Select all on this page</button>
<button class="main" name="action" value="replay" formnovalidate>Replay selected</button>
<button name="action" value="replay_group" formnovalidate>Replay the latest ${count(MAX_PER_ACTION, '', '').trim()} of this group</button></div>
<div class="stack">${formFields(discardFields, { id: 'discard', sent })}</div>
<div class="actions"><button class="danger" name="action" value="discard">Discard selected</button>
<button class="danger" name="action" value="discard_group">Discard the latest ${count(MAX_PER_ACTION, '', '').trim()}</button></div>
${listed}${next}
</form>`;
}

function userCell(
  viewer: Viewer,
  { user, pii, workspace }: { user: string | undefined; pii: boolean; workspace: Workspace },
): Part {
  if (user === undefined) return '';
  if (!pii) return MASK;
  return viewer.can('users', workspace.id)
    ? html`<a class="wrap" href="${pathWith('/users', { workspace: workspace.id, q: user })}">${user}</a>`
    : html`<span class="wrap">${user}</span>`;
}

function closedTable(viewer: Viewer, letters: ListedDeadLetter[], state: string): Html {
  const isGone = state === 'discarded';
  const rows = letters.map((letter) => ({
    ...letter,
    reason: viewer.can('pii', letter.workspaceId) ? letter.reason : MASK,
  }));
  const columns = deadLetterColumns.filter(({ name }) => isGone || !name.startsWith('discard'));
  return described(state, columns, {
    rows,
    first: {
      title: 'Dead letter',
      cell: ({ id }) => html`<a class="id" href="/dead-letters/${id}">${id}</a>`,
    },
  });
}

const act: Page<PageServices> = {
  method: 'post',
  path: '/dead-letters',
  right: 'change',
  async handle(visit) {
    const { services, viewer, actor, field, fields } = visit;
    const { pool } = services.database;
    const action = field('action');
    const workspaceId = field('workspace');
    if ((await viewer.find('change', workspaceId))?.id !== workspaceId) throw lacking('change');
    if (!viewer.can('delivery', workspaceId)) throw lacking('delivery');
    const group = await groupOf(visit, [workspaceId], field('group'));
    const ids = !action.endsWith('_group')
      ? await ownIds(services, fields('id'), workspaceId)
      : group
        ? (await selectOfGroup(pool, { ...group, limit: MAX_PER_ACTION })).map(({ id }) => id)
        : [];
    const { values, given, problems } = readForm(visit, discardFields);
    const again = async (found: Sent['problems']) => ({
      ...(await listPage(
        { ...visit, query: field },
        { given: { ...given, id: fields('id') }, problems: found },
      )),
      status: 400,
    });
    if (ids.length === 0) return again({ '': 'Select at least one dead letter.' });
    const back = (done: string) => ({
      to: pathWith('/dead-letters', { workspace: workspaceId, group: field('group'), done }),
    });
    switch (action) {
      case 'replay':
      case 'replay_group': {
        const { enqueued } = await replayDeadLetters(
          {
            ...{ database: services.database, producer: services.producer },
            ...{ lanes: services.config.LANES, actor },
          },
          ids,
        );
        return back(enqueued.length > 0 ? 'replayed' : 'nothing');
      }
      case 'discard':
      case 'discard_group': {
        if (Object.keys(problems).length > 0) return again(problems);
        const discarded = await discardDeadLetters(pool, ids, {
          ...{ by: viewer.user, reason: String(values.why), actor },
        });
        return back(discarded.length > 0 ? 'discarded' : 'nothing');
      }
      default:
        throw new PageError(400, "'action' must be replay, replay_group, discard or discard_group.");
    }
  },
};

/** Returns the ids that are dead letters of the workspace. A form can contain ids of other workspaces. */
async function ownIds({ database }: PageServices, given: string[], workspaceId: string): Promise<string[]> {
  const ids = given.filter(isUuid);
  const letters = await selectDeadLetters(database.pool, ids, 0);
  return letters.filter((letter) => letter.workspaceId === workspaceId).map(({ id }) => id);
}

export const deadLetterListPages = [list, act];

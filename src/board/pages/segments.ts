import { type Html, html } from '../../platform/html.ts';
import { NIL_UUID } from '../../platform/ids.ts';
import { takePage } from '../../platform/paging.ts';
import { toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { type FilterAttribute, filterAttributes, usesPersonalData } from '../../profile/segment.ts';
import { isUuid } from '../../profile/values.ts';
import { Refusal } from '../../resources/refusal.ts';
import { recordAudit } from '../../store/audit.ts';
import { readProfiles, type StoredUser } from '../../store/export.ts';
import {
  archiveSegment,
  createSegment,
  evaluateUsers,
  findShownSegment,
  listShownSegments,
  type ShownSegment,
  updateSegment,
} from '../../store/segments.ts';
import type { Viewer, Workspace } from '../access.ts';
import {
  chosenWorkspace,
  lacking,
  type Page,
  PageError,
  type PageServices,
  requirePermit,
  type Visit,
} from '../console.ts';
import {
  badge,
  csvLine,
  empty,
  facts,
  moment,
  nextPage,
  pathWith,
  table,
  uuid,
  workspaceChoice,
} from '../layout.ts';
import { presentWorkspace } from './groups.ts';
import {
  countMembers,
  FORM_BYTES,
  form,
  indented,
  inWords,
  problemAt,
  readWords,
  type Shown,
  TAKEN,
  tryAgain,
} from './segment-form.ts';

const PAGE = 50;

/** Maximum length in characters of a filter description in the list. */
const MAX_WORDS = 300;

const list: Page<PageServices> = {
  method: 'get',
  path: '/segments',
  right: 'segments',
  async handle(visit) {
    const workspace = await presentWorkspace(visit);
    return { title: 'Segments', body: await listPage(visit, workspace) };
  },
};

async function listPage(visit: Visit<PageServices>, workspace: Workspace, shown: Shown = {}): Promise<Html> {
  const { services, viewer, workspaces, query } = visit;
  const before = isUuid(query('before')) ? query('before') : undefined;
  const segments = await listShownSegments(services.database, workspace.id, { before, limit: PAGE + 1 });
  const pii = viewer.can('pii', workspace.id);
  const { rows: listed, next } = takePage(segments, PAGE, ({ id }) => id);
  const rows = listed.map((one) => [
    html`<a href="${pathOf(one)}">${one.name}</a>`,
    html`<span class="wrap">${inWords(one.definition, pii, MAX_WORDS)}</span>`,
    one.archivedAt === null ? badge('active', 'good') : badge('archived'),
    moment(one.createdAt),
  ]);
  return html`<h1>Segments</h1>
<p class="lead">Named filters of users of the workspace ${workspace.name}. The users of a segment are evaluated each time that it is used.</p>
${workspaces.length > 1 && html`<form class="row" method="get" action="/segments">${workspaceChoice(workspaces, workspace, { mayBeAll: false })}<button>Show</button></form>`}
${
  rows.length === 0
    ? empty(
        'No segments',
        viewer.can('edit_segments', workspace.id)
          ? 'Write a filter below, count the matching users, and save it with a name.'
          : 'You need the permission “edit_segments” to create one.',
      )
    : table('Segments', ['Name', 'Filter', 'State', 'Created'], rows)
}
${next !== null && nextPage('/segments', { workspace: workspace.id, before: next })}
<h2>Filter</h2>${shown.counted}
${form(viewer, workspace, { action: '/segments', shown, given: shown.given ?? { name: '', purpose: '', definition: '{"all": []}' } })}`;
}

const pathOf = ({ id, workspaceId }: ShownSegment) => pathWith(`/segments/${id}`, { workspace: workspaceId });

const make: Page<PageServices> = {
  method: 'post',
  path: '/segments',
  right: 'segments',
  maxBytes: FORM_BYTES,
  async handle(visit) {
    const { services, viewer, actor, field, findWorkspace } = visit;
    const workspace = await findWorkspace(field('workspace'));
    if (!workspace)
      throw new PageError(400, "'workspace' must be the id of a workspace in which you can see segments.");
    return tryAgain(
      visit,
      async () => {
        if (field('action') === 'count') return countMembers(visit, workspace, '/segments');
        if (field('action') !== 'create') throw new PageError(400, "'action' must be count or create.");
        if (!viewer.can('edit_segments', workspace.id)) throw lacking('edit_segments');
        const words = { workspaceId: workspace.id, ...readWords(visit) };
        const made = await createSegment(services.database, actor, words);
        if (made === 'taken') throw new Refusal(TAKEN, 'name');
        return { to: pathWith(`/segments/${made.id}`, { workspace: workspace.id, done: 'named' }) };
      },
      async (shown) => ({ title: 'Segments', body: await listPage(visit, workspace, shown) }),
    );
  },
};

/** @throws {PageError} if no workspace of the viewer contains the segment */
async function findOne(visit: Visit<PageServices>): Promise<{ segment: ShownSegment; workspace: Workspace }> {
  const { services, workspaces, params, field } = visit;
  const id = params.id ?? '';
  const chosen =
    field('workspace') === '' ? await chosenWorkspace(visit) : await visit.findWorkspace(field('workspace'));
  const among = chosen ? [chosen] : workspaces;
  const ids = among.map((one) => one.id);
  const segment = isUuid(id) ? await findShownSegment(services.database, ids, id) : undefined;
  const workspace = among.find((one) => one.id === segment?.workspaceId);
  if (!segment || !workspace) throw new PageError(404, 'Segment not found in your workspaces.');
  return { segment, workspace };
}

interface One {
  segment: ShownSegment;
  workspace: Workspace;
}

function segmentPage(viewer: Viewer, { segment, workspace }: One, shown: Shown = {}): Html {
  const pii = viewer.can('pii', workspace.id);
  const mayRead = pii || !usesPersonalData(segment.definition);
  const isActive = segment.archivedAt === null;
  const { name, purpose, definition } = segment;
  const given = shown.given ?? { name, purpose, definition: indented(definition) };
  const mayDownload = DOWNLOADS.every((right) => viewer.can(right, workspace.id));
  const mayArchive = isActive && viewer.can('archive_segments', workspace.id);
  return html`<h1>${name}</h1>
<p class="lead">Segment of the workspace <a href="${pathWith('/segments', { workspace: workspace.id })}">${workspace.name}</a></p>
<div class="card">${facts([
    ['Filter', html`<span class="wrap">${inWords(definition, pii)}</span>`],
    ['Purpose', purpose],
    ['Id, as clients send it', uuid(segment.id)],
    ['State', isActive ? badge('active', 'good') : badge('archived')],
    ['Created', moment(segment.createdAt)],
    ['Updated', moment(segment.updatedAt)],
    ['Archived', segment.archivedAt && moment(segment.archivedAt)],
  ])}</div>
${mayDownload && html`<p class="actions"><a class="button" href="${pathWith(`/segments/${segment.id}/users.csv`, { workspace: workspace.id })}">Download users as CSV</a> ${isActive && html`<a class="button" href="${pathWith('/exports', { workspace: workspace.id, segment: name })}#create">Start export</a>`}</p>`}
${!mayRead && html`<p class="lead">The filter contains personal data. It is shown with the permission “view_pii”.</p>`}
${shown.counted}
${isActive && mayRead && html`<h2>Filter</h2>${form(viewer, workspace, { action: `/segments/${segment.id}`, given, shown, segment })}`}
${
  mayArchive &&
  html`<h2>Archive</h2><p class="lead">An archived segment can no longer be used, and its name stays reserved.</p>
<form class="stack card" method="post" action="/segments/${segment.id}"><input type="hidden" name="workspace" value="${workspace.id}">
<label>Type archive to confirm <input name="confirm" autocomplete="off" spellcheck="false" data-word="archive" required${problemAt(shown, 'confirm').marks}>${problemAt(shown, 'confirm').hint}</label>
<p class="actions"><button class="danger" name="action" value="archive">Archive segment</button></p></form>`
}`;
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/segments/:id',
  right: 'segments',
  async handle(visit) {
    const one = await findOne(visit);
    return { title: one.segment.name, body: segmentPage(visit.viewer, one) };
  },
};

const act: Page<PageServices> = {
  method: 'post',
  path: '/segments/:id',
  right: 'segments',
  maxBytes: FORM_BYTES,
  async handle(visit) {
    const { services, viewer, actor, field } = visit;
    const one = await findOne(visit);
    const { id, workspaceId, name } = one.segment;
    const path = `/segments/${id}`;
    return tryAgain(
      visit,
      async () => {
        const back = (done: string) => ({ to: pathWith(path, { workspace: workspaceId, done }) });
        switch (field('action')) {
          case 'count':
            return countMembers(visit, one.workspace, path);
          case 'update': {
            if (!viewer.can('edit_segments', workspaceId)) throw lacking('edit_segments');
            if (usesPersonalData(one.segment.definition) && !viewer.can('pii', workspaceId))
              throw lacking('pii');
            const words = { id, workspaceId, ...readWords(visit) };
            const ending = await updateSegment(services.database, actor, words);
            if (ending === 'taken') throw new Refusal(TAKEN, 'name');
            return back(ending === 'done' ? 'changed' : 'as_before');
          }
          case 'archive': {
            if (!viewer.can('archive_segments', workspaceId)) throw lacking('archive_segments');
            if (field('confirm').trim() !== 'archive')
              throw new Refusal('The text does not match archive.', 'confirm');
            const ending = await archiveSegment(services.database, actor, { id, workspaceId, name });
            return back(ending === 'done' ? 'archived' : 'as_before');
          }
          default:
            throw new PageError(400, "'action' must be count, update or archive.");
        }
      },
      async (shown) => ({ title: name, body: segmentPage(viewer, one, shown) }),
    );
  },
};

/** Users per statement of a download, and maximum number of users of the workspace that one file reads. */
const FILE_PAGE = 1000;
const MAX_FILE_USERS = 200_000;

/** Rights to download users with their addresses. */
const DOWNLOADS = ['segments', 'users', 'pii', 'export'] as const;

/** Columns of every file. */
const columns = ['external_id', 'service_id', 'email', 'phone', 'first_name', 'last_name'];

/** Maximum number of columns for attributes of the filter. */
const MAX_FILTER_COLUMNS = 50;

/** Returns the columns for attributes of the filter, without those that every file has and the one that no export has. */
function filterColumns(segment: ShownSegment): FilterAttribute[] {
  return filterAttributes(segment.definition)
    .filter((one) => !('attribute' in one && [...columns, 'updated_at'].includes(one.attribute)))
    .slice(0, MAX_FILTER_COLUMNS);
}

const titleOf = (column: FilterAttribute) =>
  'attribute' in column ? column.attribute : `custom_attributes.${column.path.join('.')}`;

/** Returns the value of an attribute; a list or an object as JSON. */
function valueIn(user: StoredUser, column: FilterAttribute): unknown {
  let value: Json | undefined = 'attribute' in column ? user[column.attribute] : user.custom_attributes;
  for (const name of 'attribute' in column ? [] : column.path)
    value =
      typeof value === 'object' && value !== null && !Array.isArray(value) && Object.hasOwn(value, name)
        ? value[name]
        : undefined;
  return typeof value === 'object' && value !== null ? JSON.stringify(value) : value;
}

const downloadUsers: Page<PageServices> = {
  method: 'get',
  path: '/segments/:id/users.csv',
  right: 'segments',
  async handle(visit) {
    const { services, actor, query } = visit;
    const { segment, workspace } = await findOne(visit);
    requirePermit(visit, DOWNLOADS, workspace.id);
    const { pool } = services.database;
    const workspaceId = workspace.id;
    await recordAudit(pool, actor, [
      { action: 'segments.download', subject: { kind: 'segment', id: segment.id }, workspaceId },
    ]);
    return { file: 'segment.csv', type: 'text/csv; charset=utf-8', chunks: chunks() };

    /** Yields the CSV file page by page, oldest user first. The last line of a partial file tells how to continue. */
    async function* chunks() {
      const added = filterColumns(segment);
      yield csvLine([...columns, ...added.map(titleOf)]);
      let after: string | undefined = isUuid(query('after')) ? query('after') : NIL_UUID;
      for (let read = 0; read < MAX_FILE_USERS; ) {
        const part = {
          workspaceId,
          definition: segment.definition,
          after,
          limit: FILE_PAGE,
          sample: FILE_PAGE,
        };
        const evaluated = await evaluateUsers(pool, part);
        const users = await readProfiles(pool, workspaceId, {
          ...{ ids: evaluated.sample, fields: added.length > 0 ? ['custom_attributes'] : [] },
        });
        yield users
          .sort((one, other) => (one.id < other.id ? -1 : 1))
          .map((user) => lineOf(user, added))
          .join('');
        if (evaluated.read < FILE_PAGE) return;
        read += evaluated.read;
        after = evaluated.last!;
      }
      const more = pathWith(`/segments/${segment.id}/users.csv`, { workspace: workspaceId, after });
      yield csvLine([`${MAX_FILE_USERS} users of the workspace were checked. The file continues at ${more}`]);
    }
  },
};

function lineOf(user: StoredUser, added: FilterAttribute[]): string {
  const { id, external_id, email, phone, first_name, last_name } = user;
  const values = added.map((column) => valueIn(user, column));
  return csvLine([external_id, toServiceId(id), email, phone, first_name, last_name, ...values]);
}

export const segmentPages = [list, make, show, downloadUsers, act];

import { type Html, html, type Part } from '../../platform/html.ts';
import { grouped } from '../../platform/numbers.ts';
import { isUuid } from '../../profile/values.ts';
import { listExports, type ShownExport } from '../../store/segment-exports.ts';
import type { Page, PageServices } from '../console.ts';
import { badge, empty, moment, nextPage, pathWith, table, workspaceChoice } from '../layout.ts';
import { presentWorkspace } from './groups.ts';

const PAGE = 50;

/** Exports that `/users/export/segment` was asked for. Links are not shown: whoever has one has the users. */
const list: Page<PageServices> = {
  method: 'get',
  path: '/exports',
  right: 'segments',
  async handle(visit) {
    const { services, workspaces, query } = visit;
    const workspace = await presentWorkspace(visit);
    const before = isUuid(query('before')) ? query('before') : undefined;
    const found = await listExports(services.database.pool, workspace.id, { before, limit: PAGE + 1 });
    const body = html`<h1>Exports</h1>
<p class="lead">Users of segments of the workspace ${workspace.name}, as files that clients have asked for, the newest first. What became of one is known for 30 days.</p>
${workspaces.length > 1 && html`<form class="row" method="get" action="/exports">${workspaceChoice(workspaces, workspace, { mayBeAll: false })}<button class="main">Show</button></form>`}
${
  found.length === 0
    ? empty(
        'No exports',
        html`A client asks for one by <code>POST /users/export/segment</code>, with the id of a <a href="${pathWith('/segments', { workspace: workspace.id })}">segment</a>.`,
      )
    : tableOf(found.slice(0, PAGE), workspace.id)
}
${found.length > PAGE && nextPage('/exports', { workspace: workspace.id, before: found[PAGE - 1]!.id })}`;
    return { title: 'Exports', body };
  },
};

function tableOf(exports: ShownExport[], workspace: string): Html {
  return table(
    'Exports',
    [
      ...['Asked for', 'Segment', 'State'],
      ...['Users', 'Files', 'Bytes'].map((name) => ({ name, number: true as const })),
      ...['Ended', 'Link opens until', 'Callback', 'Trouble', 'Object prefix'],
    ],
    exports.map((one) => [
      moment(one.requestedAt),
      html`<a class="wrap" href="${pathWith(`/segments/${one.segmentId}`, { workspace })}">${one.segmentName}</a>`,
      stateOf(one),
      grouped(one.users),
      grouped(one.files),
      grouped(one.bytes),
      one.endedAt ? moment(one.endedAt) : html`<span class="faint">not yet</span>`,
      one.expiresAt && one.state === 'ready'
        ? moment(one.expiresAt)
        : html`<span class="faint">no link</span>`,
      callbackOf(one),
      one.lastError === null
        ? html`<span class="faint">none</span>`
        : html`<span class="wrap">${one.lastError}</span>`,
      html`<span class="id">${one.objectPrefix}</span>`,
    ]),
  );
}

function stateOf({ state, lastError }: ShownExport): Html {
  if (state === 'failed') return badge('failed', 'bad');
  if (state === 'ready') return badge('whole', 'good');
  return lastError === null ? badge('being written') : badge('tried again', 'warn');
}

/** Only its host: what stands behind it may let in whoever reads it. */
function callbackOf({ callback, toldAt, state, lastError }: ShownExport): Part {
  if (callback === null) return html`<span class="faint">none</span>`;
  const { host } = new URL(callback);
  if (toldAt) return html`${host}, told ${moment(toldAt)}`;
  if (state === 'failed') return html`${host}, not told`;
  return state === 'ready' && lastError !== null ? html`${host}, ${badge('not reached', 'warn')}` : host;
}

export const exportPages = [list];

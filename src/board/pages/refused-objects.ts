import { type Html, html, type Part } from '../../platform/html.ts';
import { NIL_UUID } from '../../platform/ids.ts';
import { meaningOf } from '../../profile/refusal.ts';
import { isUuid } from '../../profile/values.ts';
import { namesOfKeys } from '../../resources/requests.ts';
import { listRefusedHours, type RefusalName, type RefusedHour } from '../../store/refused-objects.ts';
import type { Workspace } from '../access.ts';
import { chosenWorkspace, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { count, facts, moment, pathWith, table, tree } from '../layout.ts';

const requestLink = (workspaceId: string, requestId: string) =>
  html`<a class="id" href="${pathWith(`/requests/${requestId}`, { workspace: workspaceId })}">${requestId}</a>`;

const show: Page<PageServices> = {
  method: 'get',
  path: '/refused-objects/cause',
  right: 'delivery',
  async handle(visit) {
    const { services, query } = visit;
    const workspace = await chosenWorkspace(visit);
    const cause = workspace && causeIn(visit, workspace);
    const hours = cause ? await listRefusedHours(services.database.pool, cause) : [];
    if (!workspace || !cause || hours.length === 0)
      throw new PageError(404, 'No refused object with this cause is kept in your workspaces.');
    const keys = await namesOfKeys(services, { workspaceIds: [workspace.id], keyIds: [cause.keyId] });
    const body = html`<h1>Refused objects: ${cause.reason}</h1>
<p class="lead">${meaningOf(cause.reason)}</p>
<div class="card">${facts([
      ['Field', cause.field === '' ? undefined : html`<code>${cause.field}</code>`],
      ['Array', cause.inputArray],
      ['Endpoint', cause.operation],
      ['Workspace', workspace.name],
      ['API key', keys.get(cause.keyId)],
    ])}</div>
${sampleOf(workspace, hours)}
${hoursOf(workspace, hours)}`;
    return { title: `Refused objects: ${query('reason')}`, body };
  },
};

/** Returns the cause in the query; undefined if its key id is not a UUID. */
function causeIn({ query }: Visit<PageServices>, { id }: Workspace): RefusalName | undefined {
  const keyId = query('key') || NIL_UUID;
  const reason = query('reason');
  if (!isUuid(keyId)) return undefined;
  return {
    ...{ workspaceId: id, reason, keyId },
    ...{ field: query('field'), operation: query('operation'), inputArray: query('array') },
  };
}

function sampleOf({ id }: Workspace, hours: RefusedHour[]): Part {
  const sampled = hours.find(({ sample }) => sample !== null);
  if (!sampled) return undefined;
  return html`<h2>Sample</h2>
<p class="lead">One refused object, with a mask in place of each value, from request ${requestLink(id, sampled.sampleRequestId)}.</p>
<div class="card">${tree(sampled.sample)}</div>`;
}

function hoursOf({ id }: Workspace, hours: RefusedHour[]): Html {
  const rows = hours.map(({ hour, objects, lastRequestId }) => [
    moment(hour),
    count(objects, '', '').trim(),
    requestLink(id, lastRequestId),
  ]);
  return html`<h2>By hour</h2>${table('Refused objects by hour', ['Hour', { name: 'Objects', number: true }, 'Last request'], rows)}`;
}

export const refusedObjectPages = [show];

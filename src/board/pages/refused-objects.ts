import { grouped } from '../../platform/format.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { NIL_UUID } from '../../platform/ids.ts';
import { meaningOf } from '../../profile/refusal.ts';
import { isUuid } from '../../profile/values.ts';
import { startOf } from '../../resources/refused-objects.ts';
import { namesOfKeys } from '../../resources/requests.ts';
import {
  listRefusedHours,
  type RefusalName,
  type RefusedHour,
  sumRefusedByKey,
} from '../../store/refused-objects.ts';
import type { Workspace } from '../access.ts';
import { chosenWorkspace, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { count, facts, moment, pathWith, table, tree, uuid } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';

const requestLink = (workspaceId: string, requestId: string) =>
  html`<a class="id" href="${pathWith(`/requests/${requestId}`, { workspace: workspaceId })}">${requestId}</a>`;

/** Additions to the list of causes: the totals of each API key. */
export const refusedObjectExtras: Extras<{ id: string }> = {
  async below({ services, viewer, workspaces, query }, owner) {
    const { pool } = services.database;
    const [reason, keyId, range] = ['reason', 'key', 'range'].map((name) => query(name) || undefined);
    if (keyId !== undefined && !isUuid(keyId)) return undefined;
    const workspaceIds = owner ? [owner.id] : workspaces.map(({ id }) => id);
    const sums = await sumRefusedByKey(pool, { workspaceIds, reason, keyId, since: startOf(range) });
    if (sums.length === 0) return undefined;
    const names = await namesOfKeys(services, { workspaceIds, keyIds: sums.map((one) => one.keyId) });
    const workspaceNames = new Map(workspaces.map(({ id, name }) => [id, name]));
    const several = workspaceIds.length > 1;
    const rows = sums.map((sum) => [
      keyName(sum, names, viewer.can('keys', sum.workspaceId)),
      ...(several ? [workspaceNames.get(sum.workspaceId)] : []),
      grouped(sum.objects),
      sum.keyId === NIL_UUID
        ? ''
        : html`<a href="${pathWith('/refused-objects', { workspace: sum.workspaceId, key: sum.keyId, reason, range })}">Causes</a>`,
    ]);
    const columns = [
      'API key',
      ...(several ? ['Workspace'] : []),
      { name: 'Objects', number: true as const },
    ];
    return html`<h2>By API key</h2>${table('Refused objects by API key', [...columns, 'Filter'], rows)}`;
  },
};

/** Renders the name of an API key, with a link to its page if the viewer may open it. */
function keyName({ keyId }: { keyId: string }, names: Map<string, string>, isLinked: boolean): Part {
  if (keyId === NIL_UUID) return html`<span class="faint">further keys and causes</span>`;
  const name = names.get(keyId);
  if (name === undefined) return uuid(keyId);
  return isLinked ? html`<a href="/keys/${keyId}">${name}</a>` : name;
}

const show: Page<PageServices> = {
  method: 'get',
  path: '/refused-objects/cause',
  right: 'delivery',
  async handle(visit) {
    const { services, viewer, query } = visit;
    const workspace = await chosenWorkspace(visit);
    const cause = workspace && causeIn(visit, workspace);
    const hours = cause ? await listRefusedHours(services.database, cause) : [];
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
      ['API key', keys.has(cause.keyId) ? keyName(cause, keys, viewer.can('keys', workspace.id)) : undefined],
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

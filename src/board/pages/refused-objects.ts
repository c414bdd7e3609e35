import { now } from '../../platform/clock.ts';
import { type Html, html, type Part } from '../../platform/html.ts';
import { millisecondsOf, NIL_UUID } from '../../platform/ids.ts';
import { meaningOf, rejectionReasons } from '../../profile/refusal.ts';
import { isUuid } from '../../profile/values.ts';
import {
  listRefusedHours,
  type RefusalName,
  type RefusalSum,
  type RefusedHour,
  sumRefusedObjects,
} from '../../store/refused-objects.ts';
import type { Workspace } from '../access.ts';
import { chosenWorkspace, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { count, empty, facts, moment, pathWith, table, tree, workspaceChoice } from '../layout.ts';

const HOUR_MS = 3_600_000;

/**
 * Time ranges by name in the URL; the first is the default. Each starts at a full hour, because counts are stored per
 * hour.
 */
const ranges = [
  { name: '', text: 'Last day', hours: 24 },
  { name: 'hour', text: 'This hour and the one before', hours: 1 },
  { name: 'week', text: 'Last week', hours: 168 },
  { name: 'month', text: 'Last 30 days', hours: 720 },
] as const;

const list: Page<PageServices> = {
  method: 'get',
  path: '/refused-objects',
  right: 'delivery',
  async handle(visit) {
    const { services, workspaces, query } = visit;
    const chosen = await chosenWorkspace(visit);
    const range = ranges.find(({ name }) => name === query('range'));
    if (!range) throw new PageError(404, 'Unknown range. Choose hour, week or month, or omit it for a day.');
    const reason = query('reason') || undefined;
    const sums = await sumRefusedObjects(services.database.pool, {
      workspaceIds: chosen ? [chosen.id] : workspaces.map(({ id }) => id),
      since: new Date((Math.floor(now() / HOUR_MS) - range.hours) * HOUR_MS),
      reason,
    });
    const body = html`<h1>Refused objects</h1>
<p class="lead">Objects that a request contained and that were refused, by cause. The answer to the request named them in its <code>errors</code>; they were not stored, and the sender has to send them again once they are corrected. Values are not kept.</p>
<nav class="tabs" aria-label="Ranges">${ranges.map(
      ({ name, text }) =>
        html`<a class="tab" href="${pathWith('/refused-objects', { range: name, workspace: chosen?.id, reason })}"${name === range.name && html` aria-current="page"`}>${text}</a>`,
    )}</nav>
<form class="row" method="get" action="/refused-objects">${workspaceChoice(workspaces, chosen)}
<label>Reason <select name="reason"><option value="">All</option>${Object.keys(rejectionReasons).map(
      (name) => html`<option value="${name}"${name === reason && html` selected`}>${name}</option>`,
    )}</select></label>
<input type="hidden" name="range" value="${range.name}"><button>Show</button></form>
${await causesOf(visit, sums)}`;
    return { title: 'Refused objects', body };
  },
};

async function causesOf(
  { services, workspaces }: Visit<PageServices>,
  { causes, isPart }: { causes: RefusalSum[]; isPart: boolean },
): Promise<Part> {
  if (causes.length === 0)
    return empty(
      'No object was refused',
      'Refused objects of the chosen workspace, range and reason appear here about a second after the answer.',
    );
  const names = new Map(workspaces.map(({ id, name }) => [id, name]));
  const keys = await namesOfKeys(services, causes);
  const several = workspaces.length > 1;
  const rows = causes.map((cause) => [
    html`<a href="${pathOf(cause)}">${cause.reason}</a>`,
    cause.operation === '' ? 'further fields' : html`<code>${cause.field}</code>`,
    html`<code>${cause.inputArray}</code>`,
    html`<code>${cause.operation}</code>`,
    ...(several ? [names.get(cause.workspaceId)] : []),
    keys.get(cause.keyId),
    count(cause.objects, '', '').trim(),
    requestLink(cause.workspaceId, cause.lastRequestId),
    moment(new Date(millisecondsOf(cause.lastRequestId))),
  ]);
  return html`${table(
    'Refused objects by cause',
    [
      ...['Reason', 'Field', 'Array', 'Endpoint', ...(several ? ['Workspace'] : []), 'API key'],
      { name: 'Objects', number: true as const },
      ...['Last request', 'Last refused'],
    ],
    rows,
  )}
${isPart && html`<p class="faint pager">There are more causes or hours than one page adds up. Choose a workspace or a shorter range to see all.</p>`}`;
}

const pathOf = ({ workspaceId, reason, field, operation, inputArray, keyId }: RefusalName) =>
  pathWith('/refused-objects/cause', {
    ...{ workspace: workspaceId, reason, operation, array: inputArray, field },
    ...(keyId !== NIL_UUID && { key: keyId }),
  });

const requestLink = (workspaceId: string, requestId: string) =>
  html`<a class="id" href="${pathWith(`/requests/${requestId}`, { workspace: workspaceId })}">${requestId}</a>`;

/** Returns the names of the causes' API keys, by id. */
async function namesOfKeys(
  { database: { prisma } }: PageServices,
  causes: readonly RefusalName[],
): Promise<Map<string, string>> {
  const keys = await prisma.apiKey.findMany({
    where: {
      id: { in: [...new Set(causes.map(({ keyId }) => keyId))] },
      workspaceId: { in: [...new Set(causes.map(({ workspaceId }) => workspaceId))] },
    },
    select: { id: true, name: true },
  });
  return new Map(keys.map(({ id, name }) => [id, name]));
}

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
    const keys = await namesOfKeys(services, [cause]);
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

export const refusedObjectPages = [list, show];

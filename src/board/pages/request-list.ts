import { inputArrays, listTraces } from '../../jobs/traces.ts';
import { now } from '../../platform/clock.ts';
import { html, type Part } from '../../platform/html.ts';
import { idsBetween, MAX_UUID, millisecondsOf, NIL_UUID } from '../../platform/ids.ts';
import { isUuid } from '../../profile/values.ts';
import { countFailedByRequest } from '../../store/dead-letters.ts';
import { readLatestTraces } from '../../store/ledger.ts';
import { listRefusedRequests } from '../../store/refused-objects.ts';
import type { Workspace } from '../access.ts';
import { PageError, type PageServices, type Visit } from '../console.ts';
import { badge, empty, mayOpen, moment, nextPage, pathWith, table } from '../layout.ts';

/** Requests per page. */
const PAGE = 100;

/** Number of envelopes per read, and the milliseconds after which a page reads no further envelopes. */
const ENVELOPES = 100;
const LOOK_MS = 150;

/** Maximum number of requests with refused objects per page. */
const MAX_REFUSED = 1000;

/** Maximum milliseconds between the id of a request and the ids of its envelopes. */
const MAX_DELAY_MS = 60_000;

/** States by which the list can be filtered. */
const states = ['applied', 'failed', 'refused'] as const;

/** Maximum number of API keys in the filter. */
const MAX_KEYS = 200;

interface ListedRequest {
  id: string;
  keyId: string | undefined;
  /** Id of the endpoint, which is stored only for requests with refused objects. */
  operation: string | undefined;
  arrays: Set<string>;
  accepted: number;
  refused: number;
  failed: number;
}

/** Renders the latest requests of a workspace that were applied or had refused objects. */
export async function requestList(visit: Visit<PageServices>, workspace: Workspace): Promise<Part> {
  const { services, query } = visit;
  const [key, state, array] = [query('key'), query('state'), query('array')];
  if (state !== '' && !states.some((one) => one === state))
    throw new PageError(400, `'state' must be one of: ${states.join(', ')}.`);
  const keys = await services.database.prisma.apiKey.findMany({
    where: { workspaceId: workspace.id },
    orderBy: { createdAt: 'desc' },
    take: MAX_KEYS,
    select: { id: true, name: true },
  });
  const isWanted = ({ keyId, arrays, ...request }: ListedRequest) =>
    (key === '' || keyId === key) &&
    (array === '' || arrays.has(array)) &&
    (state === '' ||
      (state === 'applied' ? request.accepted > 0 && request.failed === 0 : request[state as 'failed'] > 0));
  const { requests, boundary } = await readRequests(visit, workspace.id, isWanted);
  const shown = requests.slice(0, PAGE);
  const next = requests.length > PAGE ? shown.at(-1)!.id : boundary;
  const names = new Map(keys.map(({ id, name }) => [id, name]));
  const rows = shown.map((request) => [
    moment(new Date(millisecondsOf(request.id))),
    html`<a class="id" href="${pathWith(`/requests/${request.id}`, { workspace: workspace.id })}">${request.id}</a>`,
    html`<code>${request.operation ?? [...request.arrays].join(', ')}</code>`,
    request.keyId === undefined
      ? html`<span class="faint">none</span>`
      : (names.get(request.keyId) ?? request.keyId),
    request.accepted,
    request.refused > 0 ? badge(String(request.refused), 'bad') : 0,
    request.failed > 0 ? badge(String(request.failed), 'bad') : 0,
  ]);
  const select = (name: string, given: string, choices: (readonly [string, string])[]) =>
    html`<select name="${name}"><option value="">All</option>${choices.map(
      ([value, text]) => html`<option value="${value}"${value === given && html` selected`}>${text}</option>`,
    )}</select>`;
  const filters = { workspace: workspace.id, key, state, array };
  const number = (name: string) => ({ name, number: true as const });
  return html`<h2>Latest requests of ${workspace.name}</h2>
<form class="row" method="get" action="/requests"><input type="hidden" name="workspace" value="${workspace.id}">
<label>API key ${select(
    'key',
    key,
    keys.map(({ id, name }) => [id, name]),
  )}</label>
<label>Objects in ${select(
    'array',
    array,
    Object.keys(inputArrays).map((name) => [name, name]),
  )}</label>
<label>Status ${select('state', state, [
    ['applied', 'applied'],
    ['failed', 'with failed objects'],
    ['refused', 'with refused objects'],
  ])}</label><button>Filter</button></form>
${
  rows.length === 0
    ? empty(
        next === undefined ? 'No request found' : 'None so far',
        next === undefined
          ? 'Requests appear here once their objects are applied or refused.'
          : 'No request that this page looked at matches. “Older” continues.',
      )
    : table(
        'Latest requests',
        [
          ...['Arrived', 'Request', 'Endpoint or arrays', 'API key'],
          ...[number('Accepted'), number('Refused'), number('Failed')],
        ],
        rows,
      )
}${next !== undefined && nextPage('/requests', { ...filters, before: next })}
<p class="faint pager">Requests that still wait in the queue are found only by their id. The user of an applied object is not stored with the request: open the user under ${mayOpen(visit.viewer, '/users') ? html`<a href="/users">Users</a>` : 'Users'} to see what failed for them.</p>`;
}

/**
 * Reads the requests that are older than the previous page, latest first.
 * @returns `boundary`: id before which requests have not been read. Absent if all were read
 */
async function readRequests(
  { services, query }: Visit<PageServices>,
  workspaceId: string,
  isWanted: (request: ListedRequest) => boolean,
): Promise<{ requests: ListedRequest[]; boundary: string | undefined }> {
  const { pool } = services.database;
  const before = isUuid(query('before')) ? query('before') : undefined;
  const requestById = new Map<string, ListedRequest>();
  const of = (id: string, keyId: string | undefined) => {
    let request = requestById.get(id);
    if (!request) {
      request = { id, keyId, operation: undefined, arrays: new Set(), accepted: 0, refused: 0, failed: 0 };
      requestById.set(id, request);
    }
    return request;
  };
  const refused = await listRefusedRequests(pool, {
    ...{ workspaceId, before: before ?? MAX_UUID, limit: MAX_REFUSED },
  });
  for (const { requestId, keyId, operation, rejected, arrays } of refused) {
    const request = of(requestId, keyId === NIL_UUID ? undefined : keyId);
    request.operation = operation;
    request.refused = rejected;
    for (const name of arrays) request.arrays.add(name);
  }
  const from = performance.now();
  const start = before === undefined ? now() : millisecondsOf(before);
  let boundary: string | undefined = refused.length === MAX_REFUSED ? refused.at(-1)!.requestId : undefined;
  for (let last = idsBetween(start, start + MAX_DELAY_MS)[1]; ; ) {
    const envelopes = await readLatestTraces(pool, { workspaceId, before: last, limit: ENVELOPES });
    for (const { traces } of envelopes)
      for (const trace of traces ? listTraces(traces, workspaceId) : []) {
        if (before !== undefined && trace.requestId >= before) continue;
        const request = of(trace.requestId, trace.keyId);
        request.accepted = trace.total;
        for (const name of trace.arrays) request.arrays.add(name);
      }
    if (envelopes.length < ENVELOPES) break;
    last = envelopes.at(-1)!.envelopeId;
    const isEnough = [...requestById.values()].filter((one) => one.id > last && isWanted(one)).length > PAGE;
    if (!isEnough && performance.now() - from < LOOK_MS) continue;
    // The envelopes of an older request may not have been read.
    if (boundary === undefined || last > boundary) boundary = last;
    break;
  }
  const read = [...requestById.values()].filter(({ id }) => boundary === undefined || id >= boundary);
  const failed = await countFailedByRequest(
    pool,
    workspaceId,
    read.map(({ id }) => id),
  );
  for (const request of read) request.failed = failed.get(request.id) ?? 0;
  const requests = read.filter(isWanted).sort((one, other) => (one.id < other.id ? 1 : -1));
  return { requests, boundary };
}

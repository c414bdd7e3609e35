import { validate as isVersionedUuid, version } from 'uuid';
import {
  acceptedAt,
  type FollowedRequest,
  followRequest,
  type Standing as ObjectStanding,
  overall,
} from '../../operations/requests/follow.ts';
import { html, type Part } from '../../platform/html.ts';
import { textOfCause } from '../../profile/refusal-text.ts';
import { MAX_COUNTED } from '../../queue/waiting-search.ts';
import type { Tone } from '../../resources/resource.ts';
import type { Workspace } from '../access.ts';
import { chosenWorkspace, type Page, PageError, type PageServices, type Visit } from '../console.ts';
import { badge, count, duration, empty, facts, MASK, mayOpen, moment, pathWith, table } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';

/** Maximum number of workspaces searched if none is selected. */
const MAX_WORKSPACES = 5;

/** Maximum number of objects shown. Only bulk requests have more than a few hundred. */
const MAX_OBJECTS = 500;

/** Maximum number of lanes for which the page shows the queue position. */
const MAX_LANES = 16;

const isRequestId = (text: string) => isVersionedUuid(text) && version(text) === 7;

const givenId = ({ query }: Visit<PageServices>) => query('id').toLowerCase();

/** Additions to the list of requests: a field that opens a request by its id. */
export const requestExtras: Extras<{ id: string }> = {
  search: {
    parameters: [],
    fields: ({ query }) =>
      html`<label class="grow">Request id <input type="search" name="id" value="${query('id')}" maxlength="100" autofocus></label>`,
    belowForm: (visit) =>
      givenId(visit) !== '' &&
      html`<p class="banner bad" role="alert">Invalid request id. It must be a UUID of version 7, for example 019c13ec-a2e2-7c84-bea2-c5e0d85f1e01.</p>`,
    async opens(visit) {
      const id = givenId(visit);
      if (!isRequestId(id)) return undefined;
      return pathWith(`/requests/${id}`, { workspace: (await chosenWorkspace(visit))?.id });
    },
    isInvalid: (visit) => givenId(visit) !== '',
  },
  below: async ({ viewer }) =>
    html`<p class="faint pager">Requests that still wait in the queue are found only by their id. The page of a user under ${mayOpen(viewer, '/users') ? html`<a href="/users">Users</a>` : 'Users'} shows their refused and failed objects.</p>`,
};

const tones: Record<string, Tone> = {
  applied: 'good',
  accepted: 'warn',
  failed: 'bad',
  partially_applied: 'warn',
  rejected: 'bad',
};

const follow: Page<PageServices> = {
  method: 'get',
  path: '/requests/:id',
  right: 'delivery',
  async handle({ services, viewer, workspaces, findWorkspace, params, query }) {
    const id = (params.id ?? '').toLowerCase();
    if (!isRequestId(id)) throw new PageError(404, 'Invalid request id. It must be a UUID of version 7.');
    const chosen = await chosenWorkspace({ findWorkspace, query });
    const among = chosen ? [chosen] : workspaces;
    if (among.length > MAX_WORKSPACES)
      throw new PageError(
        400,
        `Choose its workspace under “Requests”: you have more than ${MAX_WORKSPACES}.`,
      );
    const match = await findIn(services, among, id);
    if (!match)
      throw new PageError(
        404,
        'No request with this id is kept in your workspaces. Accepted objects are kept for LEDGER_DAYS, and refused objects for 30 days; above 1,000 requests with refused objects an hour, some are not kept.',
      );
    const { workspace, followed } = match;
    const status = overall(followed);
    const pii = viewer.can('pii', workspace.id);
    const body = html`<h1>Request <span class="id">${id}</span></h1>
<div class="card">${facts([
      ['Workspace', workspace.name],
      ['Arrived', moment(acceptedAt(id))],
      ['Status', badge(status.replace('_', ' '), tones[status])],
      ['Objects', count(followed.objects.length + followed.unknown, 'accepted object')],
      ['Refused', followed.rejected > 0 ? count(followed.rejected, 'object') : undefined],
      [
        'API key',
        await sender(services, {
          keyId: followed.keyId,
          workspace,
          linked: viewer.can('keys', workspace.id),
        }),
      ],
    ])}</div>
${followed.unknown > 0 && html`<p class="banner warn">Of ${count(followed.unknown, 'object')} nothing is known: they were applied more than LEDGER_DAYS days ago, or the queue has lost them.</p>`}
${await front(services, followed)}
<h2>Objects</h2>${objects(followed, pii)}
${refusedObjects(followed)}`;
    return { title: `Request ${id}`, body, ...(status === 'accepted' && { refresh: 10 }) };
  },
};

/**
 * Renders the API key's name. Requests without a key come from the console, a preference center or an earlier release.
 */
async function sender(
  { database: { prisma } }: PageServices,
  { keyId, workspace, linked }: { keyId: string | undefined; workspace: Workspace; linked: boolean },
): Promise<Part> {
  if (keyId === undefined)
    return html`<span class="faint">none: sent from here or from a preference center, or by an earlier release</span>`;
  const key = await prisma.apiKey.findFirst({
    where: { id: keyId, workspaceId: workspace.id },
    select: { name: true },
  });
  const name = key ? key.name : html`<span class="id">${keyId}</span>`;
  return linked ? html`<a href="/keys/${keyId}">${name}</a>` : name;
}

async function findIn(services: PageServices, among: Workspace[], id: string) {
  for (const workspace of among) {
    const followed = await followRequest(services, workspace.id, id);
    if (followed) return { workspace, followed };
  }
  return undefined;
}

/** Renders the request's position in its lanes: how much is queued ahead of it. */
async function front({ waiting }: PageServices, { waits }: FollowedRequest): Promise<Part> {
  if (waits.length === 0) return undefined;
  const now = Date.now();
  const rows = await Promise.all(
    waits.slice(0, MAX_LANES).map(async ({ lane, envelopeId }) => {
      const { ahead, first } = await waiting.standing(lane, envelopeId);
      return [
        `Lane ${lane}`,
        html`<span class="id">${envelopeId}</span>`,
        first?.id === envelopeId
          ? 'in progress, or next'
          : ahead === undefined
            ? `more than ${MAX_COUNTED}`
            : count(ahead, 'envelope'),
        first === undefined
          ? ''
          : html`<span class="id">${first.id}</span>, there for ${duration((now - first.timestamp) / 1000)}`,
      ];
    }),
  );
  return html`<h2>Waiting</h2>${table('Where it waits', ['Lane', 'Envelope', { name: 'In front', number: true }, 'First of the lane'], rows)}
<p class="faint pager">A lane applies one envelope after the other. If the first does not move, <a href="/">the first page</a> says why.</p>`;
}

function objects({ objects: all, deadLetters }: FollowedRequest, pii: boolean): Part {
  if (all.length === 0) return empty('None', 'No object of this request was accepted.');
  const positions = new Map(
    deadLetters.map((letter) => {
      const object = letter.object as { index?: number } | null;
      return [`${letter.kind} ${object?.index ?? 0}`, letter.id];
    }),
  );
  const row = ({ input_array, index, status, reason }: ObjectStanding): Part[] => {
    const letter =
      positions.get(`${input_array} ${index}`) ??
      (status === 'failed' && deadLetters.length === 1 ? deadLetters[0]!.id : undefined);
    return [
      html`<code>${input_array}</code>`,
      index,
      badge(status, tones[status]),
      html`<span class="wrap">${reason === undefined ? '' : pii ? reason : MASK}</span>`,
      letter === undefined ? '' : html`<a href="/dead-letters/${letter}">show</a>`,
    ];
  };
  return html`${table('Objects of the request', ['Array', { name: 'Place', number: true }, 'Status', 'Why', 'Dead letter'], all.slice(0, MAX_OBJECTS).map(row))}
${all.length > MAX_OBJECTS && html`<p class="faint pager">The first ${MAX_OBJECTS} are shown, of ${count(all.length, 'object')}. <code>GET /requests/{request_id}</code> has all.</p>`}`;
}

function refusedObjects({ refused, rejected }: FollowedRequest): Part {
  if (refused.length === 0) return undefined;
  const rows = refused.map(({ inputArray, index, reason, field }) => [
    html`<code>${inputArray}</code>`,
    index,
    html`<code>${reason}</code>`,
    html`<code>${field}</code>`,
    textOfCause({ reason, field }),
  ]);
  return html`<h2>Refused objects</h2>${table('Refused objects of the request', ['Array', { name: 'Place', number: true }, 'Reason', 'Field', 'Message'], rows)}
${rejected > refused.length && html`<p class="faint pager">The first ${refused.length} are kept, of ${count(rejected, 'object')}.</p>`}`;
}

export const requestPages = [follow];

import type { InputArray } from '../jobs/traces.ts';
import { millisecondsOf } from '../platform/ids.ts';
import { MAX_EXTERNAL_ID_BYTES } from '../profile/identifier.ts';
import { type LatestRequest, readLatestRequests, requestArrays } from '../store/latest-requests.ts';
import { choice, optional, readId, text } from './fields.ts';
import { type Context, describeResource, iso, type Shown } from './resource.ts';
import { findIdentifiers } from './user-identifiers.ts';

/** Maximum number of API keys in the filter of the console. */
const MAX_KEYS = 200;

/** A request of a workspace. Its API key can have been deleted. */
interface ShownRequest extends LatestRequest {
  workspaceId: string;
  /** Name of the API key. */
  key: string | undefined;
}

/** The endpoints whose requests have the array. */
const endpoints: Record<InputArray, string> = {
  attributes: '/users/track',
  events: '/users/track',
  purchases: '/users/track',
  user_aliases: '/users/alias/new',
  alias_updates: '/users/alias/update',
  aliases_to_identify: '/users/identify',
  emails_to_identify: '/users/identify',
  phone_numbers_to_identify: '/users/identify',
  merge_updates: '/users/merge',
  external_ids: '/users/delete, /users/external_ids/remove',
  service_ids: '/users/delete',
  email_addresses: '/users/delete',
  phone_numbers: '/users/delete',
  external_id_renames: '/users/external_ids/rename',
  subscription_groups: '/v2/subscription/status/set',
  email: '/email/*, /subscription/status/set',
  emails: '/v2/subscription/status/set',
  phone: '/subscription/status/set',
  phones: '/v2/subscription/status/set',
  external_id: '/subscription/status/set',
};

const states = ['applied', 'failed', 'refused'] as const;

interface Filters {
  user?: string;
  key?: string;
  array?: string;
  state?: (typeof states)[number];
}

/** Returns whether a request passes the filters. */
const wantedBy =
  ({ key, array, state }: Filters) =>
  (request: LatestRequest): boolean =>
    (key === undefined || request.keyId === key) &&
    (array === undefined || request.arrays.has(array)) &&
    (state === undefined ||
      (state === 'applied' ? request.accepted > 0 && request.failed === 0 : request[state] > 0));

const problemCount = (objects: number): Shown =>
  objects > 0 ? { badge: String(objects), tone: 'bad' } : { text: '0' };

/** Returns the names of API keys by id. */
export async function namesOfKeys(
  { database: { prisma } }: Pick<Context, 'database'>,
  { workspaceIds, keyIds }: { workspaceIds: readonly string[]; keyIds: readonly string[] },
): Promise<Map<string, string>> {
  if (keyIds.length === 0) return new Map();
  const keys = await prisma.apiKey.findMany({
    where: { id: { in: [...new Set(keyIds)] }, workspaceId: { in: [...new Set(workspaceIds)] } },
    select: { id: true, name: true },
  });
  return new Map(keys.map(({ id, name }) => [id, name]));
}

/** Filter of lists by the API key that sent the requests. */
export const keyFilter = (what: string) =>
  optional(text({ label: 'API key', help: `only ${what} of the API key with this id`, value: 'id' }, readId));

/** Returns the names of the latest API keys of a workspace by id, as choices of this filter. */
export async function keyChoices(
  { database: { prisma } }: Pick<Context, 'database'>,
  { id }: { id: string },
): Promise<{ key: Record<string, string> }> {
  const keys = await prisma.apiKey.findMany({
    where: { workspaceId: id },
    orderBy: { createdAt: 'desc' },
    take: MAX_KEYS,
    select: { id: true, name: true },
  });
  return { key: Object.fromEntries(keys.map((one) => [one.id, one.name])) };
}

const NEEDS_PII =
  'Without the permission “view_pii”, users are not found by email addresses, phone numbers, or external ids that look like one.';

/** Returns the identifiers of the user in the filter; undefined if they need `view_pii`. @throws if the acting user may not see users */
function readUser(context: Context, workspaceId: string, text: string) {
  context.requirePermit('users', workspaceId);
  const pii = context.hasPermit('pii', workspaceId);
  return findIdentifiers(context.database, { workspaceId, text, pii });
}

/** Requests whose objects were applied or refused. The page of a single request is special: it follows each object. */
export const requests = describeResource<ShownRequest>({
  noun: 'requests',
  one: 'request',
  many: 'requests',
  title: 'Requests',
  sentence: 'List the latest requests of a workspace, with the numbers of their objects.',
  example: 'requests list --workspace default',
  lead: 'The result for each object of a request. The id of a request is in the header X-Request-Id of the answer, in the log, and in every dead letter. The list shows requests whose objects were applied or refused, the latest first.',
  scope: 'workspace',
  isOfOne: true,
  isListOnly: true,
  permit: 'delivery',
  nameTitle: 'Request',
  columns: [
    { name: 'request_id', value: ({ id }) => id },
    {
      name: 'arrived_at',
      title: 'Arrived',
      kind: 'time',
      value: ({ id }) => iso(new Date(millisecondsOf(id))),
    },
    { name: 'operation', value: ({ operation }) => operation ?? null },
    { name: 'arrays', value: ({ arrays }) => [...arrays] },
    {
      name: 'sent_to',
      title: 'Endpoint or arrays',
      kind: 'code',
      value: ({ operation, arrays }) => operation ?? [...arrays].join(', '),
      not: ['json', 'table'],
    },
    { name: 'api_key_id', value: ({ keyId }) => keyId ?? null, not: ['table'] },
    {
      name: 'api_key',
      title: 'API key',
      value: ({ key }) => key ?? null,
      shown: ({ key, keyId }) => ({ text: key ?? keyId ?? 'none' }),
    },
    { name: 'accepted', title: 'Accepted', kind: 'number', value: ({ accepted }) => accepted },
    {
      name: 'refused',
      title: 'Refused',
      kind: 'number',
      value: ({ refused }) => refused,
      shown: ({ refused }) => problemCount(refused),
    },
    {
      name: 'failed',
      title: 'Failed',
      kind: 'number',
      value: ({ failed }) => failed,
      shown: ({ failed }) => problemCount(failed),
    },
  ],
  filters: {
    user: optional(
      text(
        {
          label: 'User',
          help: 'only requests with objects of the user with this external id, service id, alias (label:name), email address or phone number',
          value: 'identifier',
        },
        (given) => given,
        { maxLength: MAX_EXTERNAL_ID_BYTES, isExact: true },
      ),
    ),
    key: keyFilter('requests'),
    array: optional(
      choice(
        { label: 'Endpoint', help: 'only requests with objects in this array', value: 'array' },
        requestArrays,
        {
          texts: Object.fromEntries(
            Object.entries(endpoints).map(([array, paths]) => [array, `${paths}: ${array}`]),
          ),
        },
      ),
    ),
    state: optional(
      choice({ label: 'Status', help: 'only requests with this result', value: 'state' }, states, {
        texts: { failed: 'with failed objects', refused: 'with refused objects' },
      }),
    ),
  },
  filterChoices: keyChoices,
  listing: {
    sentence:
      'List the requests whose objects were applied or refused, the latest first. Requests that wait in the queue are not listed.',
    example: 'requests list --workspace default --state failed --json',
    isNewestFirst: true,
    pageSize: 100,
  },
  async list(context, { owners = [], before, filters = {}, limit }) {
    const { database } = context;
    const [workspaceId] = owners;
    if (workspaceId === undefined) return [];
    const given = filters as Filters;
    const user = given.user === undefined ? undefined : await readUser(context, workspaceId, given.user);
    if (given.user !== undefined && user === undefined) return { rows: [], note: NEEDS_PII };
    const { requests: listed, boundary } = await readLatestRequests(database.pool, {
      ...{ workspaceId, before, limit, user, isWanted: wantedBy(given) },
    });
    const page = listed.slice(0, limit);
    const names = await namesOfKeys(
      { database },
      { workspaceIds: [workspaceId], keyIds: page.flatMap(({ keyId }) => keyId ?? []) },
    );
    const rows = page.map((one) => ({ ...one, workspaceId, key: names.get(one.keyId ?? '') }));
    return {
      ...{ rows, next: boundary },
      ...(boundary !== undefined &&
        listed.length < limit && {
          note: `Requests since ${new Date(millisecondsOf(boundary)).toISOString()} were read.`,
        }),
    };
  },
  find: async () => undefined,
  nameOf: ({ id }) => id,
  pathOf: ({ id, workspaceId }) => `/requests/${id}?workspace=${workspaceId}`,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: { argument: '<id>', help: 'id of the request', isWithin: true },
  empty: 'Requests appear here once their objects are applied or refused.',
  actions: [],
});

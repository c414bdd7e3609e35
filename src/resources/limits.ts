import type { Config } from '../platform/config.ts';
import { duration } from '../platform/format.ts';
import { type BucketName, buckets } from '../schemas/limits.ts';
import { bucketsOf, rulesOf } from '../schemas/vendor-rules.ts';
import { type RateLimitOverride, resetRateLimits, setRateLimit } from '../store/rate-limits.ts';
import { choice, optional, readCount, text } from './fields.ts';
import {
  action,
  type Context,
  creation,
  describeResource,
  type Owner,
  type Resource,
  rowOf,
} from './resource.ts';

/** Name of the bucket in the console. */
export const bucketName = (bucket: string): string =>
  bucket === 'default' ? 'all other endpoints (default)' : bucket;

/** Maximum number of endpoints that the list names. The page of a limit names all of them. */
const MAX_LISTED = 5;

/** The limit of one bucket, in a workspace or by default. */
export interface Limit extends RateLimitOverride {
  /** Name of the bucket. */
  id: string;
  /** Empty for the default limits. */
  workspace: Owner;
  /** Whether the workspace has a limit of its own. */
  isOwn: boolean;
  /** Endpoints that the bucket counts, for example `POST /users/track`; only in the console. */
  endpoints?: readonly string[] | undefined;
}

const noOwner: Owner = { id: '', name: '' };

/** Returns the limit of each bucket: the workspace's own limit, otherwise the default of VENDOR_RULES. */
function limitsOf(
  { VENDOR_RULES }: Pick<Config, 'VENDOR_RULES'>,
  workspace = noOwner,
  {
    own = [],
    endpoints,
  }: {
    own?: readonly RateLimitOverride[];
    endpoints?: ReadonlyMap<string, readonly string[]> | undefined;
  } = {},
): Limit[] {
  const given = new Map(own.map((one) => [one.bucket, one]));
  return Object.entries(bucketsOf(rulesOf[VENDOR_RULES])).map(([bucket, usual]) => {
    const { requests, windowSeconds } = given.get(bucket) ?? usual;
    const counted = endpoints && { endpoints: endpoints.get(bucket) ?? [] };
    return { id: bucket, bucket, workspace, requests, windowSeconds, isOwn: given.has(bucket), ...counted };
  });
}

/** Returns the endpoints of each bucket, from the operations of the API. */
async function endpointsByBucket({
  SERVICE_ID_FIELD,
  VENDOR_RULES,
}: Config): Promise<ReadonlyMap<string, readonly string[]>> {
  // Loaded only by the console, because a command does not need the schemas of all operations.
  const { allOperations } = await import('../operations/index.ts');
  const endpoints = new Map<string, string[]>();
  for (const { bucket, method, path } of allOperations(SERVICE_ID_FIELD, { rules: rulesOf[VENDOR_RULES] }))
    endpoints.set(bucket, [...(endpoints.get(bucket) ?? []), `${method} ${path}`]);
  return endpoints;
}

function listedEndpoints({ endpoints = [] }: Limit): string {
  if (endpoints.length === 0) return 'Counts no endpoint with these VENDOR_RULES.';
  const left = endpoints.length - MAX_LISTED;
  const more = left > 0 ? ` and ${left} more` : '';
  return `Counts ${endpoints.slice(0, MAX_LISTED).join(', ')}${more}.`;
}

async function readLimits(
  { database: { prisma }, config, actor }: Context,
  workspaceId = '',
): Promise<Limit[]> {
  const [endpoints, workspace, own] = await Promise.all([
    actor.via === 'console' ? endpointsByBucket(config) : undefined,
    prisma.workspace.findUnique({ where: { id: workspaceId }, select: { id: true, name: true } }),
    prisma.rateLimit.findMany({ where: { workspaceId } }),
  ]);
  return workspace ? limitsOf(config, workspace, { own, endpoints }) : [];
}

async function readLimit(context: Context, workspaceId: string, bucket: string): Promise<Limit | undefined> {
  return (await readLimits(context, workspaceId)).find(({ id }) => id === bucket);
}

const bucketField = choice<BucketName>(
  { label: 'Bucket', help: 'bucket: endpoints that share a limit' },
  Object.keys(buckets) as BucketName[],
);

export const limits: Resource<Limit> = describeResource<Limit>({
  noun: 'limits',
  one: 'limit',
  many: 'limits',
  title: 'Limits',
  sentence: 'Show and change the rate limits of a workspace.',
  example: 'limits list --workspace default',
  lead: 'Maximum number of requests by bucket and window. The endpoints of a bucket share its limit. Web answers further requests with 429.',
  scope: 'workspace',
  isOfOne: true,
  permit: 'usage',
  isId: (id) => Object.hasOwn(buckets, id),
  nameTitle: 'Bucket',
  columns: [
    { name: 'bucket', kind: 'code', value: ({ bucket }) => bucket },
    {
      name: 'workspace',
      title: 'Workspace',
      value: ({ workspace }) => workspace.name,
      not: ['json', 'table', 'list'],
    },
    { name: 'requests', title: 'Requests', kind: 'number', value: ({ requests }) => requests },
    {
      name: 'window_seconds',
      title: 'In',
      kind: 'duration',
      value: ({ windowSeconds }) => windowSeconds,
    },
    {
      name: 'overridden',
      title: 'Source',
      value: ({ isOwn }) => isOwn,
      shown: ({ isOwn }) => (isOwn ? { badge: 'own', tone: 'warn' } : { text: 'built in' }),
    },
    {
      name: 'endpoints',
      title: 'Endpoints',
      value: () => undefined,
      shown: (limit) => ({ text: listedEndpoints(limit) }),
      not: ['json', 'table', 'page'],
    },
    {
      name: 'all_endpoints',
      title: 'Counts',
      kind: 'list',
      value: ({ endpoints = [] }) => [...endpoints],
      not: ['json', 'table', 'list'],
    },
  ],
  listing: {
    sentence: 'List the rate limits of a workspace, or the defaults without --workspace.',
    example: 'limits list --workspace default --json',
    isWhole: true,
    withoutOwner: (config) => limitsOf(config),
  },
  list: (context, { owners }) => readLimits(context, owners?.[0]),
  find: (context, id, owners = []) =>
    owners.length === 1 ? readLimit(context, owners[0]!, id) : Promise.resolve(undefined),
  nameOf: ({ bucket }) => bucketName(bucket),
  ownerOf: ({ workspace }) => workspace.id,
  naming: {
    isWithin: true,
    options: { bucket: bucketField },
    find: (context, { options, owner }) => readLimit(context, owner!.id, String(options.bucket)),
  },
  empty: 'Create a workspace first.',
  actions: [
    action({
      verb: 'set',
      button: 'Change',
      submit: 'Set limit',
      sentence: 'Set the rate limit of a workspace for one bucket.',
      example: 'limits set --workspace default --bucket users.track --requests 100000 --window-seconds 60',
      // A limit protects the installation from a workspace, so the users of the workspace cannot change it.
      permit: 'operator',
      fields: {
        requests: text(
          { label: 'Requests', help: 'maximum number of requests in a window', value: 'number' },
          readCount,
        ),
        window_seconds: text(
          { label: 'Window in seconds', help: 'length of the window in seconds', value: 'number' },
          readCount,
        ),
      },
      filled: ({ requests, windowSeconds }: Limit) => ({
        ...{ requests: String(requests), window_seconds: String(windowSeconds) },
      }),
      isInList: true,
      done: ({ KEY_CACHE_MS }) => `Limit set. It applies within ${duration(KEY_CACHE_MS / 1000)}.`,
      async run(context, { one: { bucket, workspace }, values }) {
        await setRateLimit(context.database, context.actor, {
          ...{ workspaceId: workspace.id, bucket },
          ...{ requests: values.requests, windowSeconds: values.window_seconds },
        });
        const one = (await readLimit(context, workspace.id, bucket))!;
        return { one, row: { workspace: workspace.name, ...rowOf(limits, one) } };
      },
    }),
    action({
      verb: 'reset',
      button: 'Remove limit',
      sentence: 'Remove the limit of a workspace for one bucket. The default applies again.',
      example: 'limits reset --workspace default --bucket users.track',
      permit: 'operator',
      fields: {},
      isInList: true,
      isConsoleOnly: true,
      isOffered: ({ isOwn }: Limit) => isOwn,
      done: 'Limit removed. The built-in limit applies again.',
      async run(context, { one: { bucket, workspace } }) {
        await resetRateLimits(context.database, context.actor, { workspaceId: workspace.id, bucket });
        return { one: (await readLimit(context, workspace.id, bucket))! };
      },
    }),
  ],
  ownerActions: [
    creation({
      verb: 'reset',
      button: 'Remove limits',
      sentence:
        'Remove the limits that were set for a workspace, for one bucket or all. The defaults apply again.',
      example: 'limits reset --workspace default --bucket users.track',
      permit: 'operator',
      lead: 'Removes the limits that were set for the workspace. Without a bucket, all of them are removed.',
      fields: { bucket: optional(bucketField) },
      done: 'Limits removed. The built-in limits apply again.',
      async run(context, { owner, values: { bucket } }) {
        await resetRateLimits(context.database, context.actor, { workspaceId: owner.id, bucket });
        return { rows: await readLimits(context, owner.id) };
      },
    }),
  ],
});

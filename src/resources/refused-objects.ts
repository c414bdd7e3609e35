import { now } from '../platform/clock.ts';
import { millisecondsOf, NIL_UUID } from '../platform/ids.ts';
import { rejectionReasons } from '../profile/refusal.ts';
import { type RefusalName, type RefusalSum, sumRefusedObjects } from '../store/refused-objects.ts';
import { choice, optional } from './fields.ts';
import { keyChoices, keyFilter, namesOfKeys } from './requests.ts';
import { describeResource, iso } from './resource.ts';

const HOUR_MS = 3_600_000;

/** Hours by range. Each range starts at a full hour, because counts are stored by hour. */
const ranges = { hour: 1, day: 24, week: 168, month: 720 };

type Range = keyof typeof ranges;

/** Refused objects of one cause, with the names of their workspace and API key. */
interface ShownCause extends RefusalSum {
  id: string;
  workspace: string;
  key: string | undefined;
}

/** Returns the start of a range; the last day by default. */
export function startOf(range: string | undefined): Date {
  const hours = Object.hasOwn(ranges, range ?? '') ? ranges[range as Range] : ranges.day;
  return new Date((Math.floor(now() / HOUR_MS) - hours) * HOUR_MS);
}

/** Returns the address of the page of a cause. */
function pathOf({ workspaceId, reason, operation, inputArray, field, keyId }: RefusalName): string {
  const query = { workspace: workspaceId, reason, operation, array: inputArray, field };
  const given = Object.entries({ ...query, key: keyId === NIL_UUID ? '' : keyId });
  return `/refused-objects/cause?${new URLSearchParams(given.filter(([, value]) => value !== ''))}`;
}

/** Refused objects by cause. The page of a single cause is special: it has a sample and the counts by hour. */
export const refusedObjects = describeResource<ShownCause>({
  noun: 'refused-objects',
  one: 'cause',
  many: 'refused objects',
  title: 'Refused objects',
  sentence: 'List the refused objects of a workspace by cause.',
  example: 'refused-objects list --workspace default',
  lead: 'Objects that a request contained and that were refused, by cause. The answer to the request named them in errors. They were not stored: the sender has to correct them and send them again. Values are not kept.',
  scope: 'workspace',
  isListOnly: true,
  permit: 'delivery',
  nameTitle: 'Reason',
  columns: [
    { name: 'reason', value: ({ reason }) => reason },
    { name: 'field', value: ({ field }) => field },
    {
      name: 'field_or_rest',
      title: 'Field',
      value: ({ field }) => field,
      shown: ({ field, operation }) => (operation === '' ? { text: 'further fields' } : { code: field }),
      not: ['json', 'table'],
    },
    { name: 'array', title: 'Array', kind: 'code', value: ({ inputArray }) => inputArray },
    { name: 'operation', title: 'Endpoint', kind: 'code', value: ({ operation }) => operation },
    { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace, not: ['table'] },
    {
      name: 'api_key_id',
      value: ({ keyId }) => (keyId === NIL_UUID ? null : keyId),
      not: ['table'],
    },
    {
      name: 'api_key',
      title: 'API key',
      value: ({ key }) => key ?? null,
      shown: ({ key, keyId }) =>
        key !== undefined ? { text: key, href: `/keys/${keyId}` } : keyId === NIL_UUID ? {} : { text: keyId },
      linkPermit: 'keys',
    },
    { name: 'objects', title: 'Objects', kind: 'number', value: ({ objects }) => objects },
    {
      name: 'last_request_id',
      title: 'Last request',
      value: ({ lastRequestId }) => lastRequestId,
      shown: ({ lastRequestId, workspaceId }) => ({
        ...{ text: lastRequestId, href: `/requests/${lastRequestId}?workspace=${workspaceId}` },
      }),
    },
    {
      name: 'last_refused_at',
      title: 'Last refused',
      kind: 'time',
      value: ({ lastRequestId }) => iso(new Date(millisecondsOf(lastRequestId))),
    },
  ],
  filters: {
    range: optional(
      choice(
        { label: 'Range', help: 'length of the time up to now; the default is day', value: 'range' },
        Object.keys(ranges) as Range[],
        {
          texts: {
            ...{ hour: 'This hour and the one before', day: 'Last day' },
            ...{ week: 'Last week', month: 'Last 30 days' },
          },
          unset: 'Last day',
        },
      ),
    ),
    reason: optional(
      choice(
        { label: 'Reason', help: 'only objects that were refused for this reason', value: 'reason' },
        Object.keys(rejectionReasons),
      ),
    ),
    key: keyFilter('objects'),
  },
  filterChoices: keyChoices,
  listing: {
    sentence: 'List the causes for which web refused objects, the most frequent first.',
    example: 'refused-objects list --workspace default --range week --json',
    isWhole: true,
    pageSize: 100,
  },
  async list({ database }, { owners = [], filters = {} }) {
    const { range, reason, key } = filters as { range?: string; reason?: string; key?: string };
    const { causes, isPart } = await sumRefusedObjects(database.pool, {
      ...{ workspaceIds: owners, reason, keyId: key, since: startOf(range) },
    });
    const workspaceIds = [...new Set(causes.map(({ workspaceId }) => workspaceId))];
    const [workspaces, keys] = await Promise.all([
      database.prisma.workspace.findMany({
        where: { id: { in: workspaceIds } },
        select: { id: true, name: true },
      }),
      namesOfKeys({ database }, { workspaceIds, keyIds: causes.map(({ keyId }) => keyId) }),
    ]);
    const names = new Map(workspaces.map(({ id, name }) => [id, name]));
    const rows = causes.map((cause) => ({
      ...{ ...cause, id: pathOf(cause), key: keys.get(cause.keyId) },
      workspace: names.get(cause.workspaceId) ?? cause.workspaceId,
    }));
    const note =
      'There are more causes or hours than one list adds up. Choose one workspace or a shorter range to see all.';
    return { rows, note: isPart ? note : undefined };
  },
  find: async () => undefined,
  nameOf: ({ reason }) => reason,
  pathOf,
  ownerOf: ({ workspaceId }) => workspaceId,
  naming: {},
  empty: 'Refused objects appear here about a second after the answer to their request.',
  actions: [],
});

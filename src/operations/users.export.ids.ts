import { ApiError, errors } from '../errors.ts';
import { grouped } from '../platform/format.ts';
import { toServiceId } from '../profile/identifier.ts';
import { type Json, jsonBytesAtLeast } from '../profile/json.ts';
import type { Schema } from '../schemas/compile.ts';
import { userAlias } from '../schemas/track.ts';
import type { Pool } from '../store/database.ts';
import { MAX_LISTED, readProfiles, type StoredUser } from '../store/export.ts';
import { findExported, MAX_ANSWERED } from '../store/profile-search.ts';
import {
  MAX_IDS,
  type NamedUser,
  readNamedUsers,
  toUserObject,
  type UserField,
  userFields,
} from './export/user-fields.ts';
import type { DirectOperation } from './operation.ts';
import { listOf } from './query-parameters.ts';

/**
 * POST /users/export/ids: reads profiles, with all or some of their fields. One statement resolves all identifiers, and
 * one statement reads each page of profiles.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersExportIds(serviceIdField: string): DirectOperation {
  const fields = userFields(serviceIdField);
  const schemas = Object.fromEntries(Object.entries(fields).map(([name, { schema }]) => [name, schema]));

  return {
    kind: 'direct',
    isLarge: true,
    id: 'users.export.ids',
    method: 'POST',
    readsOnly: true,
    path: '/users/export/ids',
    permission: 'users.export.ids',
    bucket: 'users.export.ids',
    summary: 'Export users by their identifiers',
    description: `You can combine kinds of identifiers. Send at most ${MAX_IDS} external ids, aliases and service ids together, and at most one email address, one phone number and one device. Each user is listed once, in the order of external ids, aliases, service ids, email address, phone and device. For an email address, phone number or device, up to ${grouped(MAX_ANSWERED)} users are listed: users with an external id first, then the most recently updated. Fields without data are omitted, except user_aliases (empty) and total_revenue (0). total_revenue counts purchases in USD only, because amounts are not converted. revenue has the sum for each currency. ${EXPORT_LIMITS}`,
    body: bodySchema(serviceIdField, Object.keys(fields)),
    replies: { 201: { description: 'The users found.', schema: replySchema(schemas) } },
    refusals: ['tooManyIds', 'tooManyIdsAndAliases', 'tooMuchToExport', 'tooLongToExport'],
    example: example(serviceIdField),

    async handle({ workspaceId }, { body }, { database }) {
      const named = readNamedUsers(body, serviceIdField);
      const shown = chooseFields(fields, body.fields_to_export);
      const wanted = named.flatMap(({ key }, index) => (key ? [{ place: index, ...key }] : []));
      const matches = await findExported(database.pool, workspaceId, wanted);
      const ids = [...new Set(matches.map(({ id }) => id))];
      const names = shown.map(([name]) => name);
      const pages = readUsers(database.pool, workspaceId, { ids, fields: names });
      return { status: 201, body: undefined, parts: encodeReply(pages, { named, matches, shown }) };
    },
  };
}

/** Generates the JSON text of the answer, user by user. */
async function* encodeReply(
  pages: AsyncIterable<StoredUser[]>,
  { named, matches, shown }: { named: NamedUser[]; matches: Found[]; shown: [string, UserField][] },
): AsyncGenerator<string> {
  const ids = new Set<string>();
  yield '{"users":[';
  for await (const page of pages)
    for (const user of page) {
      yield `${ids.size === 0 ? '' : ','}${JSON.stringify(toUserObject(user, shown))}`;
      ids.add(user.id);
    }
  const invalid = unknown(
    named,
    matches.filter(({ id }) => ids.has(id)),
  );
  if (invalid.length > 0) yield `],"invalid_user_ids":${JSON.stringify(invalid)},"message":"success"}`;
  else yield '],"message":"success"}';
}

/** A user that was found, with the position of its identifier in the request. */
interface Found {
  place: number;
  id: string;
}

/** Returns the requested fields. Unknown names are ignored, because clients also request fields of other services. */
function chooseFields(fields: Record<string, UserField>, given: Json | undefined): [string, UserField][] {
  const named = new Set(listOf(given));
  return Object.entries(fields).filter(([name]) => named.size === 0 || named.has(name));
}

/** Returns the identifiers that matched no user, as sent and without duplicates. */
function unknown(named: NamedUser[], matches: { place: number }[]): string[] {
  const foundIndexes = new Set(matches.map(({ place: index }) => index));
  return [...new Set(named.filter((_, index) => !foundIndexes.has(index)).map(({ sent }) => sent))];
}

function bodySchema(serviceIdField: string, fields: string[]): Schema {
  const ids = (description: string) => ({
    type: ['array', 'string', 'integer', 'null'],
    maxItems: MAX_IDS,
    items: { type: ['string', 'integer'], rule: 'it must be a string' },
    description,
    rule: 'it must be an array of strings',
    refusal: { maxItems: errors.tooManyIds.message },
  });
  const one = (description: string) => ({
    type: ['string', 'null'],
    description,
    rule: 'it must be a string',
  });
  return {
    type: 'object',
    properties: {
      external_ids: ids('The ids that you gave the users.'),
      user_aliases: {
        type: ['array', 'object', 'null'],
        maxItems: MAX_IDS,
        items: userAlias,
        description: 'Aliases of the users.',
        rule: 'it must be an array of user alias objects',
        refusal: { maxItems: errors.tooManyIdsAndAliases.message },
      },
      [serviceIdField]: ids("The service's own id of a user: 24 hexadecimal digits."),
      [`${serviceIdField}s`]: ids("The service's own ids of the users."),
      email_address: one('An email address. All users with this address are listed.'),
      phone: one('A phone number in E.164. All users with this number are listed.'),
      device_id: one('A device id. All users with a push token of this device are listed.'),
      fields_to_export: {
        type: ['array', 'string', 'null'],
        items: { type: 'string', rule: 'it must be a string' },
        description: `The fields to answer with, all if absent. Known: ${fields.join(', ')}. Other names are ignored.`,
        rule: 'it must be an array of strings',
      },
    },
  };
}

function replySchema(fields: Record<string, Schema>): Schema {
  return {
    type: 'object',
    required: ['users', 'message'],
    properties: {
      users: {
        type: 'array',
        items: { title: 'User', type: 'object', properties: fields, additionalProperties: false },
      },
      invalid_user_ids: {
        type: 'array',
        items: { type: 'string' },
        description:
          'The identifiers that match no user, as sent; for an alias, its name. Absent if all identifiers match.',
      },
      message: { const: 'success' },
    },
  };
}

function example(serviceIdField: string): DirectOperation['example'] {
  return {
    body: { external_ids: ['ada', 'nobody'] },
    reply: {
      users: [
        {
          created_at: '2026-01-31T12:00:01.250Z',
          external_id: 'ada',
          user_aliases: [],
          [serviceIdField]: '019c13eca2e2b61f0c55a3d7',
          random_bucket: 503,
          first_name: 'Ada',
          email: 'ada@example.com',
          custom_attributes: { logins: 1 },
          custom_events: [
            {
              name: 'signed_up',
              first: '2026-01-31T12:00:00.000Z',
              last: '2026-01-31T12:00:00.000Z',
              count: 1,
            },
          ],
          purchases: [
            { name: 'book', first: '2026-01-31T12:05:00.000Z', last: '2026-01-31T12:05:00.000Z', count: 2 },
          ],
          total_revenue: 25,
          revenue: { USD: 25 },
          email_subscribe: 'subscribed',
          push_subscribe: 'subscribed',
        },
      ],
      invalid_user_ids: ['nobody'],
      message: 'success',
    },
  };
}

/** Maximum size of the users of one answer: 16 MB. */
export const MAX_EXPORT_BYTES = 16_777_216;

/** Approximate number of bytes per page. The event loop serves other requests between two pages. */
const PAGE_BYTES = 1_048_576;
const FIRST_PAGE = 4;
const LARGEST_PAGE = 100;

/**
 * Reads users page by page, in the order of `ids`. The page size is estimated from the users read before. A user that
 * was deleted in the meantime is missing.
 *
 * @param fields names of the wanted fields
 * @throws {ApiError} if the users exceed MAX_EXPORT_BYTES, or if one list of a user exceeds MAX_LISTED
 */
async function* readUsers(
  pool: Pool,
  workspaceId: string,
  { ids, fields }: { ids: string[]; fields: string[] },
): AsyncGenerator<StoredUser[]> {
  let bytes = 0;
  for (let start = 0, size = FIRST_PAGE; start < ids.length; ) {
    const page = ids.slice(start, start + size);
    const users = new Map<string, StoredUser>();
    for (const user of await readProfiles(pool, workspaceId, { ids: page, fields })) {
      const cut = user.cut.filter((field) => fields.includes(field));
      if (cut.length > 0)
        throw new ApiError('tooLongToExport', {
          suffix: `${cut.join(', ')} of ${toServiceId(user.id)}`,
        });
      users.set(user.id, user);
      bytes += jsonBytesAtLeast(user);
    }
    if (bytes > MAX_EXPORT_BYTES) throw new ApiError('tooMuchToExport');
    yield page.flatMap((id) => users.get(id) ?? []);
    start += page.length;
    size = Math.max(1, Math.min(LARGEST_PAGE, Math.floor((PAGE_BYTES * start) / Math.max(1, bytes))));
  }
}

/** The limits, for descriptions and messages. */
const EXPORT_LIMITS = `If the users take more than ${MAX_EXPORT_BYTES / 1_048_576} MB together, or if one user has more than ${grouped(MAX_LISTED)} kinds of events, products or push tokens, the answer is 400. Then ask for fewer users, or for fewer fields in \`fields_to_export\`.`;

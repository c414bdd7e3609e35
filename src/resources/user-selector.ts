import { normalizeEmail, searchedPhone } from '../profile/addresses.ts';
import { MAX_EXTERNAL_ID_BYTES, toProfileId, toServiceId } from '../profile/identifier.ts';
import { searchUsers, type UserSearch } from '../store/profile-search.ts';
import { optional, readExternalId, text } from './fields.ts';
import { InvalidValue, Refusal } from './refusal.ts';
import type { Naming } from './resource.ts';

/** A user of a workspace. */
export interface NamedUser {
  /** The profile's UUID. */
  id: string;
  workspaceId: string;
}

/** Maximum number of users that an error lists when several share an email address or a phone number. */
const MAX_SHARED = 20;

function readServiceId(given: string): string {
  const id = given.toLowerCase();
  if (!/^[0-9a-f]{24}$/.test(id)) throw new InvalidValue('A service id must have 24 hexadecimal digits.');
  return id;
}

function readAlias(given: string): { label: string; name: string } {
  const [, label, name] = /^([^:]+):(.+)$/s.exec(given) ?? [];
  if (label === undefined || name === undefined)
    throw new InvalidValue('An alias must be written as label:name.');
  return { label, name };
}

function readEmail(given: string): string {
  const email = normalizeEmail(given);
  if (email === undefined) throw new InvalidValue('Not a valid email address.');
  return email;
}

function readPhone(given: string): string {
  const number = searchedPhone(given);
  if (!number?.valid)
    throw new InvalidValue('Not a valid phone number. Write it with its country code, as in +14155552671.');
  return number.phone;
}

/** The options that identify a user. Exactly one is needed. */
const options = {
  external_id: optional(
    text({ label: 'External id', help: 'external id of the user', value: 'id' }, readExternalId, {
      maxLength: MAX_EXTERNAL_ID_BYTES,
      isExact: true,
    }),
  ),
  service_id: optional(
    text(
      { label: 'Service id', help: 'service id of the user (24 hexadecimal digits)', value: 'id' },
      readServiceId,
    ),
  ),
  alias: optional(text({ label: 'Alias', help: 'alias of the user', value: 'label:name' }, readAlias)),
  email: optional(text({ label: 'Email', help: 'email address of the user', value: 'address' }, readEmail)),
  phone: optional(
    text({ label: 'Phone', help: 'phone number of the user, with country code', value: 'number' }, readPhone),
  ),
};

/** How a command identifies a user. */
export const userNaming: Naming<NamedUser> = {
  isWithin: true,
  options,
  /** @throws {Refusal} if the options match no user or several users, or have more than one identifier */
  async find({ database: { pool } }, { options: given, owner }) {
    const { external_id: externalId, service_id: serviceId, ...others } = given;
    const search = Object.fromEntries(
      Object.entries({
        ...{ ...others, externalId },
        id: serviceId === undefined ? undefined : toProfileId(String(serviceId)),
      }).filter(([, value]) => value !== undefined),
    ) as UserSearch;
    if (Object.keys(search).length !== 1)
      throw new Refusal('name one user with --external-id, --service-id, --alias, --email or --phone');
    const workspaceId = owner!.id;
    const matches = await searchUsers(pool, [workspaceId], { search, limit: MAX_SHARED });
    const [first] = matches;
    if (!first) throw new Refusal('no user of the workspace has this identifier; try penstock users find');
    if (matches.length > 1) {
      const ids = matches.map(({ id }) => toServiceId(id)).join(', ');
      throw new Refusal(`several users have this address; name one with --service-id: ${ids}`);
    }
    return { id: first.id, workspaceId };
  },
};

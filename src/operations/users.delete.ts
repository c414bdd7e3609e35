import { BadRequest } from '../errors.ts';
import type { UserSelector } from '../jobs/envelope.ts';
import { type Identifier, isGiven, serviceIdOf, userAliasOf } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { alternatives, type Refusal, refuse, requiredOneOf } from '../profile/refusal.ts';
import { isRecord } from '../profile/values.ts';
import type { Schema } from '../schemas/compile.ts';
import { userAlias } from '../schemas/track.ts';
import {
  type ArrayForm,
  arrayOf,
  countedReply,
  counter,
  elementsOf,
  email,
  externalId,
  notAnObject,
  notAString,
  phone,
  planOf,
  prioritization,
  refusal,
  requireSome,
  validateElements,
} from './identity/elements.ts';
import { readAddress, readExternalIdElement } from './identity/selectors.ts';
import type { QueuedOperation } from './operation.ts';

/** A way to name users: the form and the schema of its array, and how to read an element. */
interface Kind extends ArrayForm {
  items: Schema;
  description: string;
  read(element: Json): { user: UserSelector } | Refusal;
}

/**
 * POST /users/delete: deletes users permanently.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersDelete(serviceIdField: string): QueuedOperation {
  const kinds = kindsOf(serviceIdField);
  const fields = Object.keys(kinds);
  const several = refuse('conflict', '', `a request must not have more than one of ${alternatives(fields)}`);

  return {
    kind: 'queued',
    id: 'users.delete',
    method: 'POST',
    path: '/users/delete',
    permission: 'users.delete',
    bucket: 'users.identity',
    summary: 'Delete users',
    description:
      'Deletes users and all their data. You cannot undo this. Send exactly one kind of identifier per request, at most 50 of them. `errors` lists the elements that are not valid. An identifier that matches no user, or an address that matches more than one user after `prioritization`, deletes no user.',
    body: {
      type: 'object',
      properties: Object.fromEntries(
        Object.entries(kinds).map(([field, { items, description }]) => [field, arrayOf(items, description)]),
      ),
    },
    replies: {
      201: {
        description: 'The deletions are stored on disk and will take effect.',
        schema: countedReply(fields, { deleted: counter('Number of ids queued for deletion.') }),
      },
    },
    refusals: ['nothingValid', 'tooManyIds', 'tooManyIdsAndAliases'],
    ...refusal(fields),
    example: { body: { external_ids: ['grace', 'alan'] }, reply: { deleted: 2, message: 'success' } },

    plan(_caller, body) {
      const given = Object.entries(kinds).flatMap(([field, kind]) => {
        const elements = elementsOf(body, field, kind);
        return elements ? [{ field, kind, elements }] : [];
      });
      const [first, another] = given;
      if (!first) throw new BadRequest(requiredOneOf(fields));
      if (another) throw new BadRequest(several);
      const { field, kind } = first;
      const validated = validateElements(field, requireSome(field, first.elements), (element) => {
        const read = kind.read(element);
        return 'error' in read ? read : { kind: 'delete', ...read };
      });
      return planOf(validated, [field], { deleted: validated.objects.length });
    },
  };
}

function kindsOf(serviceIdField: string): Record<string, Kind> {
  const serviceIds = `${serviceIdField}s`;
  return {
    external_ids: {
      of: 'strings',
      tooMany: 'tooManyIds',
      items: externalId('The id that you gave the user.'),
      description: 'External ids. A deprecated external id deletes the user that it resolves to.',
      read: (element) => {
        const read = readExternalIdElement(element, 'external_ids');
        return 'error' in read ? read : { user: { identifier: { external_id: read.id } } };
      },
    },
    user_aliases: {
      of: 'objects',
      tooMany: 'tooManyIdsAndAliases',
      items: userAlias,
      description: 'Aliases of the users.',
      read: (element) => userOf(userAliasOf(element)),
    },
    [serviceIds]: {
      of: 'strings',
      tooMany: 'tooManyIds',
      items: { type: 'string', description: '24 hexadecimal digits.' },
      description: "The service's own ids of the users.",
      read: (element) =>
        isGiven(element) ? userOf(serviceIdOf(element, serviceIds)) : notAString(serviceIds),
    },
    email_addresses: byAddress({
      kind: 'email',
      address: email,
      field: 'email_addresses',
      description: 'Email addresses of the users.',
    }),
    phone_numbers: byAddress({
      kind: 'phone',
      address: phone,
      field: 'phone_numbers',
      description: 'Phone numbers of the users.',
    }),
  };
}

interface AddressArray {
  kind: 'email' | 'phone';
  /** Schema of an address. */
  address: Schema;
  /** Name of the array. */
  field: string;
  description: string;
}

function byAddress({ kind, address, field, description }: AddressArray): Kind {
  return {
    of: 'objects',
    tooMany: 'tooManyIds',
    items: {
      type: 'object',
      required: [kind, 'prioritization'],
      properties: { [kind]: address, prioritization },
    },
    description,
    read: (element) => (isRecord(element) ? readAddress(element, kind) : notAnObject(field)),
  };
}

const userOf = (read: { identifier: Identifier } | Refusal) => ('error' in read ? read : { user: read });

import { BadRequest } from '../errors.ts';
import { isGiven } from '../profile/identifier.ts';
import { invalid, requiredOneOf } from '../profile/refusal.ts';
import type { Schema } from '../schemas/compile.ts';
import {
  countedReply,
  counter,
  elementsOf,
  type Judged,
  judgeObjects,
  planOf,
  refusal,
  requireSome,
} from './identity/elements.ts';
import { identifyArrays, readNewExternalId } from './identity/selectors.ts';
import type { QueuedOperation } from './operation.ts';

const fields = Object.keys(identifyArrays) as (keyof typeof identifyArrays)[];

/** POST /users/identify: gives users an external id, or merges them into who has it. */
export function usersIdentify(): QueuedOperation {
  return {
    kind: 'queued',
    id: 'users.identify',
    method: 'POST',
    path: '/users/identify',
    permission: 'users.identify',
    bucket: 'users.identity',
    summary: 'Identify users',
    description:
      'At least one of the three arrays, each with at most 50 elements. A user without an external id gets it if no user has it. Otherwise the user is merged into the user who has it, and is gone; an alias whose label the kept user has already then names no user. An element has no effect if its alias or address matches no user, if more than one user is left for an address, or if the user has an external id already. An element that cannot be read is named in `errors`.',
    body: bodySchema,
    replies: {
      201: {
        description: 'The counted elements are on disk and will take effect.',
        schema: countedReply(
          fields,
          Object.fromEntries(
            fields.map((field) => [
              identifyArrays[field].counter,
              counter(`Number of elements of ${field} accepted; present when it was sent.`),
            ]),
          ),
          [],
        ),
      },
    },
    refusals: ['nothingValid', 'tooManyIdsAndAliases'],
    ...refusal(fields),
    example: {
      body: {
        aliases_to_identify: [
          { external_id: 'ada', user_alias: { alias_name: 'c-1042', alias_label: 'cookie' } },
        ],
        emails_to_identify: [
          {
            external_id: 'grace',
            email: 'grace@example.com',
            prioritization: ['unidentified', 'most_recently_updated'],
          },
        ],
      },
      reply: { aliases_processed: 1, emails_processed: 1, message: 'success' },
    },

    plan(caller, body) {
      const { merge_behavior } = body;
      if (isGiven(merge_behavior) && merge_behavior !== 'none' && merge_behavior !== 'merge') {
        throw new BadRequest(invalid('merge_behavior', "it must be 'none' or 'merge'"));
      }
      const sent = fields.flatMap((field) => {
        const elements = elementsOf(body, field, { of: 'objects', tooMany: 'tooManyIdsAndAliases' });
        return elements ? [{ field, elements }] : [];
      });
      if (!sent[0]) {
        throw new BadRequest(requiredOneOf(fields));
      }
      // Clients send an empty array of one kind beside a full one of another.
      requireSome(
        sent[0].field,
        sent.flatMap(({ elements }) => elements),
      );
      const judged: Judged = { objects: [], rejected: [] };
      const counts: Record<string, number> = {};
      for (const { field, elements } of sent) {
        const { objects, rejected } = judgeObjects(field, elements, (element) => {
          const target = readNewExternalId(element.external_id, 'external_id', caller);
          if ('error' in target) return target;
          const read = identifyArrays[field].read(element);
          return 'error' in read ? read : { kind: 'identify', external_id: target.id, ...read };
        });
        judged.objects.push(...objects);
        judged.rejected.push(...rejected);
        counts[identifyArrays[field].counter] = objects.length;
      }
      return planOf(
        judged,
        sent.map(({ field }) => field),
        counts,
      );
    },
  };
}

const bodySchema: Schema = {
  type: 'object',
  properties: {
    ...Object.fromEntries(fields.map((field) => [field, identifyArrays[field].schema])),
    merge_behavior: {
      enum: ['none', 'merge', null],
      description: 'Data is merged in either case; kept for clients that send it.',
    },
  },
};

import { BadRequest } from '../errors.ts';
import { isGiven } from '../profile/identifier.ts';
import { invalid, requiredOneOf } from '../profile/refusal.ts';
import type { Schema } from '../schemas/compile.ts';
import { rulesOf, type VendorRules } from '../schemas/vendor-rules.ts';
import {
  countedReply,
  counter,
  elementsOf,
  planOf,
  refusal,
  requireSome,
  type Validated,
  validateObjects,
} from './identity/elements.ts';
import { identifyArrays, readNewExternalId } from './identity/selectors.ts';
import type { QueuedOperation } from './operation.ts';

const fields = Object.keys(identifyArrays) as (keyof typeof identifyArrays)[];

/** POST /users/identify: gives users an external id, or merges them into the user who already has it. */
export function usersIdentify(rules: VendorRules = rulesOf.spec): QueuedOperation {
  const isLabelDecisive = rules.takenLabel === 'ignore';
  const takenLabel = isLabelDecisive
    ? 'If the user with the external id has another alias with the label of an alias to identify, the element has no effect.'
    : 'If the kept user has an alias with the same label already, the alias of the merged user is removed.';
  return {
    kind: 'queued',
    id: 'users.identify',
    method: 'POST',
    path: '/users/identify',
    permission: 'users.identify',
    bucket: 'users.identity',
    summary: 'Identify users',
    description: `At least one of the three arrays, each with at most 50 elements. A user without an external id gets it if no user has it. Otherwise the user is merged into the user with the external id and is deleted. ${takenLabel} An element has no effect if its alias or address matches no user, if an address matches more than one user after \`prioritization\`, or if the user has an external id already. \`errors\` lists the elements that are not valid.`,
    body: bodySchema,
    replies: {
      201: {
        description: 'The counted elements are stored on disk and will take effect.',
        schema: countedReply(
          fields,
          Object.fromEntries(
            fields.map((field) => [
              identifyArrays[field].counter,
              counter(`Number of elements of ${field} accepted. Present if the request has the array.`),
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
      // Clients send an empty array of one kind together with a full one of another kind.
      requireSome(
        sent[0].field,
        sent.flatMap(({ elements }) => elements),
      );
      const validated: Validated = { objects: [], rejected: [] };
      const counts: Record<string, number> = {};
      for (const { field, elements } of sent) {
        const { objects, rejected } = validateObjects(field, elements, (element) => {
          const target = readNewExternalId(element.external_id, 'external_id', caller);
          if ('error' in target) return target;
          const read = identifyArrays[field].read(element);
          if ('error' in read) return read;
          return {
            ...{ kind: 'identify', external_id: target.id, ...read },
            ...(isLabelDecisive && 'user_alias' in read.user.identifier && { keeps_labels: true }),
          };
        });
        validated.objects.push(...objects);
        validated.rejected.push(...rejected);
        counts[identifyArrays[field].counter] = objects.length;
      }
      return planOf(
        validated,
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
      description: 'Accepted for compatibility. Data is merged with either value.',
    },
  },
};

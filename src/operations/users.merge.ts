import { ApiError, errors } from '../errors.ts';
import type { AcceptedMerge } from '../jobs/envelope.ts';
import { newId } from '../platform/ids.ts';
import { areRecords } from '../profile/values.ts';
import type { Schema } from '../schemas/compile.ts';
import { userAlias } from '../schemas/track.ts';
import { rulesOf, type VendorRules } from '../schemas/vendor-rules.ts';
import {
  arrayOf,
  email,
  MAX_ELEMENTS,
  phone,
  prioritization,
  refusal,
  replySchema,
  tooManyElements,
} from './identity/elements.ts';
import { readMergeUpdate } from './identity/selectors.ts';
import type { QueuedOperation } from './operation.ts';

const FIELD = 'merge_updates';

/**
 * POST /users/merge: merges one user into another. In contrast to the other identity operations, one malformed merge
 * update refuses the whole request, with the message that the specification gives.
 */
export function usersMerge(rules: VendorRules = rulesOf.spec): QueuedOperation {
  const isMixed = rules.mergeTypes === 'any';
  return {
    kind: 'queued',
    id: 'users.merge',
    method: 'POST',
    path: '/users/merge',
    permission: 'users.merge',
    bucket: 'users.identity',
    summary: 'Merge users',
    description: `At most 50 merge updates, each with two identifiers${isMixed ? '' : ' of the same type'}. Data that the kept user lacks moves from the merged user, activity is added up, and the merged user is deleted. A merge update has no effect if one identifier matches no user, if an address matches more than one user after \`prioritization\`, or if both identifiers match the same user. One malformed merge update makes the whole request fail, also one with an email address or phone number without a valid \`prioritization\`. \`errors\` lists the malformed merge update.`,
    body: bodySchema,
    replies: {
      202: { description: 'The merges are stored on disk and will take effect.', schema: replySchema({}) },
    },
    refusals: [
      'mergeUpdatesNotObjects',
      'tooManyMergeUpdates',
      'malformedMergeIdentifier',
      ...(isMixed ? [] : (['mixedMergeIdentifiers'] as const)),
      'extraMergeKeys',
    ],
    ...refusal([FIELD]),
    ...(rules.mergeMessage !== errors.malformedMergeIdentifier.message && {
      messages: { malformedMergeIdentifier: rules.mergeMessage },
    }),
    example: {
      body: {
        merge_updates: [
          {
            identifier_to_merge: { external_id: 'ada-old' },
            identifier_to_keep: { external_id: 'ada' },
          },
          {
            identifier_to_merge: { email: 'ada@example.com', prioritization: ['unidentified'] },
            identifier_to_keep: {
              email: 'ada@example.com',
              prioritization: ['identified', 'most_recently_updated'],
            },
          },
        ],
      },
      reply: { message: 'success' },
    },

    plan(_caller, { merge_updates }) {
      // An empty array gets the same message, because the specification has no other one for it.
      if (!Array.isArray(merge_updates) || merge_updates.length === 0) {
        throw new ApiError('mergeUpdatesNotObjects');
      }
      if (merge_updates.length > MAX_ELEMENTS)
        throw tooManyElements('tooManyMergeUpdates', { field: 'merge_updates', count: merge_updates.length });
      if (!areRecords(merge_updates)) throw new ApiError('mergeUpdatesNotObjects');
      const objects = merge_updates.map(
        (update, index): AcceptedMerge => ({
          ...{ kind: 'merge', id: newId(), index },
          ...readMergeUpdate(update, index, rules),
        }),
      );
      return { objects, rejected: [], reply: { status: 202, body: { message: 'success' } } };
    },
  };
}

const identifier: Schema = {
  type: 'object',
  description:
    'Exactly one of external_id, user_alias, email and phone. email and phone require a prioritization.',
  properties: {
    external_id: { type: 'string', description: 'The id that you gave the user, at most 987 bytes.' },
    user_alias: userAlias,
    email,
    phone,
    prioritization,
  },
};

const bodySchema: Schema = {
  type: 'object',
  required: ['merge_updates'],
  properties: {
    merge_updates: arrayOf(
      {
        title: 'MergeUpdate',
        type: 'object',
        required: ['identifier_to_merge', 'identifier_to_keep'],
        additionalProperties: false,
        properties: { identifier_to_merge: identifier, identifier_to_keep: identifier },
      },
      'The merge updates. They take effect in any order.',
    ),
  },
};

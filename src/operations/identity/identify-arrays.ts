import type { UserSelector } from '../../jobs/identity.ts';
import { isGiven, userAliasOf } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/schema.ts';
import { userAlias } from '../../schemas/track.ts';
import { readAddress } from './address.ts';
import type { Refusal } from './elements.ts';
import { arrayOf, email, externalId, phone, prioritization } from './schemas.ts';

/** The arrays of a request to identify: what counts their elements, and whom an element means. */
export const identifyArrays = {
  aliases_to_identify: {
    counter: 'aliases_processed',
    schema: schemaOf({ user_alias: userAlias }, 'Users by an alias, and as whom to identify them.'),
    read: ({ user_alias }: Record<string, Json>): { user: UserSelector } | Refusal => {
      if (!isGiven(user_alias)) return { error: "'user_alias' is required" };
      const user = userAliasOf(user_alias);
      return 'error' in user ? user : { user };
    },
  },
  emails_to_identify: {
    counter: 'emails_processed',
    schema: schemaOf({ email, prioritization }, 'Users by email address, and as whom to identify them.'),
    read: (element: Record<string, Json>) => readAddress(element, 'email'),
  },
  phone_numbers_to_identify: {
    counter: 'phone_numbers_processed',
    schema: schemaOf({ phone, prioritization }, 'Users by phone number, and as whom to identify them.'),
    read: (element: Record<string, Json>) => readAddress(element, 'phone'),
  },
};

/** It may be empty beside another one. */
function schemaOf(identifier: Record<string, Schema>, description: string): Schema {
  const element = {
    type: 'object',
    required: ['external_id', ...Object.keys(identifier)],
    properties: { external_id: externalId('The id that the user gets.'), ...identifier },
  };
  return { ...arrayOf(element, description), minItems: 0 };
}

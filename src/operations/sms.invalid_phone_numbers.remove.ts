import { BadRequest, errors } from '../errors.ts';
import { invalid } from '../profile/refusal.ts';
import { removeInvalidNumbers } from '../store/suppression-lists.ts';
import { phone, requiredElements } from './identity/elements.ts';
import type { DirectOperation } from './operation.ts';
import { listOrOne } from './query-parameters.ts';
import { readNumbers } from './sms.invalid_phone_numbers.ts';

/** POST /sms/invalid_phone_numbers/remove */
export const smsInvalidPhoneNumbersRemove = (): DirectOperation => ({
  id: 'sms.invalid_phone_numbers.remove',
  kind: 'direct',
  method: 'POST',
  path: '/sms/invalid_phone_numbers/remove',
  bucket: 'default',
  permission: 'sms.invalid_phone_numbers.remove',
  summary: 'Remove phone numbers from the list of invalid numbers',
  description: 'At most 50 numbers. A number that is not on the list has no effect.',
  body: {
    type: 'object',
    required: ['phone_numbers'],
    properties: {
      phone_numbers: {
        ...listOrOne(phone, 'Phone numbers. They need not belong to a user.'),
        refusal: { maxItems: errors.tooManyIds.message },
      },
    },
  },
  replies: {
    201: {
      description: 'The numbers are no longer on the list.',
      schema: { type: 'object', required: ['message'], properties: { message: { const: 'success' } } },
    },
  },
  refusals: ['tooManyIds'],
  example: { body: { phone_numbers: ['+14155552671'] }, reply: { message: 'success' } },

  async handle({ workspaceId }, { body }, { database }) {
    const sent = requiredElements(body, 'phone_numbers', { of: 'strings', tooMany: 'tooManyIds' });
    if (sent.length === 0) throw new BadRequest(invalid('phone_numbers', 'it must not be empty'));
    await removeInvalidNumbers(database.pool, workspaceId, readNumbers(sent));
    return { status: 201, body: { message: 'success' } };
  },
});

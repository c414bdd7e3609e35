import { BadRequest } from '../errors.ts';
import { searchedPhone } from '../profile/addresses.ts';
import { isGiven } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import { invalid } from '../profile/refusal.ts';
import {
  type InvalidNumbersPage,
  type InvalidReason,
  invalidReasons,
  listInvalidNumbers,
} from '../store/suppression-lists.ts';
import { MAX_ELEMENTS, phone } from './identity/elements.ts';
import type { DirectOperation } from './operation.ts';
import { count, day, listOf, listOrOne, readDays, readOffset, readWholeNumber } from './query-parameters.ts';

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 500;

/** GET /sms/invalid_phone_numbers */
export const smsInvalidPhoneNumbers = (): DirectOperation => ({
  id: 'sms.invalid_phone_numbers',
  kind: 'direct',
  method: 'GET',
  path: '/sms/invalid_phone_numbers',
  bucket: 'default',
  permission: 'sms.invalid_phone_numbers',
  summary: 'List invalid phone numbers',
  description:
    'Lists the numbers that were marked with `penstock phone-numbers mark-invalid`, latest first. Send both days or numbers. With numbers, the days are ignored.',
  query: {
    type: 'object',
    properties: {
      start_date: day(
        'The list starts at 0:00 UTC of this day. Required together with end_date unless you send phone_numbers.',
      ),
      end_date: day('The list ends before 0:00 UTC of this day. Required unless you send phone_numbers.'),
      limit: count(1, MAX_LIMIT, `Maximum number of phone numbers, by default ${DEFAULT_LIMIT}.`),
      offset: count(0, undefined, 'Number of phone numbers to skip, by default 0.'),
      phone_numbers: listOrOne(phone, 'Only these numbers. For a list, repeat `phone_numbers[]=…`.'),
      reason: {
        enum: [...invalidReasons],
        description: 'Only numbers with this reason, by default all.',
        rule: "it must be 'provider_error' or 'deactivated'",
      },
    },
  },
  replies: {
    200: {
      description: 'The numbers.',
      schema: {
        type: 'object',
        required: ['sms', 'message'],
        properties: {
          sms: {
            type: 'array',
            maxItems: MAX_LIMIT,
            items: {
              type: 'object',
              required: ['phone', 'invalid_detected_at', 'reason'],
              properties: {
                phone: { type: 'string', description: 'A phone number in E.164.' },
                invalid_detected_at: { type: 'string', format: 'date-time' },
                reason: { enum: [...invalidReasons] },
              },
            },
          },
          message: { const: 'success' },
        },
      },
    },
  },
  example: {
    query: { start_date: '2026-01-01', end_date: '2026-02-01' },
    reply: {
      sms: [
        { phone: '+14155552671', invalid_detected_at: '2026-01-31T12:00:01.000Z', reason: 'deactivated' },
      ],
      message: 'success',
    },
  },

  async handle({ workspaceId }, { query }, { database }) {
    const rows = await listInvalidNumbers(database, workspaceId, readPage(query));
    const sms = rows.map(({ phone: number, detectedAt, reason }) => ({
      ...{ phone: number, invalid_detected_at: detectedAt, reason },
    }));
    return { status: 200, body: { sms, message: 'success' } };
  },
});

/**
 * Reads the requested page.
 * @throws {BadRequest} with the parameter and the rule
 */
function readPage(query: Record<string, Json>): InvalidNumbersPage {
  const phones = isGiven(query.phone_numbers) ? readNumbers(listOf(query.phone_numbers)) : undefined;
  const { start, end } = readDays(query, phones === undefined ? "'phone_numbers'" : undefined);
  const { reason } = query;
  return {
    ...(phones !== undefined && { phones }),
    ...(phones === undefined && { from: new Date(start!), to: new Date(end!) }),
    ...(isGiven(reason) && { reason: reason as InvalidReason }),
    limit: readWholeNumber(query, 'limit', { from: 1, to: MAX_LIMIT, otherwise: DEFAULT_LIMIT }),
    offset: readOffset(query),
  };
}

/**
 * Converts phone numbers to the form of the store. Ten digits are a US number, as in other requests. Other numbers
 * without a plus get one, because clients of this endpoint omit it.
 *
 * @throws {BadRequest} with the element and the rule
 */
export function readNumbers(sent: Json[]): string[] {
  if (sent.length > MAX_ELEMENTS)
    throw new BadRequest(invalid('phone_numbers', `it must have at most ${MAX_ELEMENTS} elements`));
  return sent.map((one, index) => {
    const text = typeof one === 'string' || typeof one === 'number' ? String(one).trim() : '';
    const read = searchedPhone(text);
    if (!read?.valid)
      throw new BadRequest(invalid(`phone_numbers[${index}]`, 'it must be a phone number in E.164'));
    return read.phone;
  });
}

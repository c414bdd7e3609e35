import { BadRequest } from '../../errors.ts';
import type { AcceptedEmailChange } from '../../jobs/envelope.ts';
import { normalizeEmail } from '../../profile/addresses.ts';
import { emailOf, INVALID_EMAIL, isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { toIso } from '../../profile/time.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { Page } from '../../store/suppression-lists.ts';
import {
  countedReply,
  email,
  planOf,
  refusal,
  requiredElements,
  validateElements,
} from '../identity/elements.ts';
import type { Plan, QueuedOperation } from '../operation.ts';
import {
  count,
  day,
  listOrOne,
  readDays,
  readOffset,
  readWholeNumber,
  withPlus,
} from '../query-parameters.ts';
import { READ_BACK_WITHIN } from '../subscription/states.ts';

const FIELD = 'email';

/** Schema of the list of addresses in a body. */
export const addresses = listOrOne(email, 'Email addresses. They need not belong to a user.');

/** Members that the operations for lists of addresses share. */
export const addressOperation = {
  kind: 'queued',
  method: 'POST',
  bucket: 'default',
  readBackWithin: READ_BACK_WITHIN,
  replies: {
    201: {
      description: 'The changes are stored on disk. Unless the workers lag, the next read returns them.',
      schema: countedReply([FIELD], {}),
    },
  },
  refusals: ['nothingValid', 'tooManyIds'],
  ...refusal([FIELD]),
} as const satisfies Partial<QueuedOperation>;

/**
 * Plans the same change for each address of the body. An invalid address is refused individually.
 *
 * @throws {BadRequest|ApiError} if no address is valid, or if there are too many
 */
export function planChange(
  body: Record<string, Json>,
  change: Pick<AcceptedEmailChange, 'state' | 'hard_bounced' | 'marked_as_spam'>,
): Plan {
  const elements = requiredElements(body, FIELD, { of: 'strings', tooMany: 'tooManyIds' });
  const validated = validateElements(FIELD, elements, (element) => {
    const read = emailOf(element);
    return 'error' in read ? read : { kind: 'email_change' as const, ...read.identifier, ...change };
  });
  return planOf(validated, [FIELD], {});
}

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 500;
/** The query parameters of a list of addresses. */
export const listParameters: Schema = {
  type: 'object',
  properties: {
    start_date: day(
      'The list starts at 0:00 UTC of this day. Required together with end_date unless you send an email.',
    ),
    end_date: day('The list ends before 0:00 UTC of this day. Required unless you send an email.'),
    email: { type: 'string', description: 'Only this address.', rule: 'it must be an email address' },
    limit: count(1, MAX_LIMIT, `Maximum number of addresses, by default ${DEFAULT_LIMIT}.`),
    offset: count(0, undefined, 'Number of addresses to skip, by default 0.'),
    sort_direction: {
      enum: ['asc', 'desc'],
      default: 'desc',
      description: '`desc`: latest first. `asc`: oldest first.',
      rule: "it must be 'asc' or 'desc'",
    },
  },
};

/** Schema of an answer with a list of addresses. `since` is the name of the member with the time. */
export const listReply = (since: string, description: string): Schema => ({
  type: 'object',
  required: ['emails', 'message'],
  properties: {
    emails: {
      type: 'array',
      items: {
        type: 'object',
        required: ['email', since],
        properties: {
          email: { type: 'string' },
          [since]: {
            type: 'string',
            description: `${description} For example \`2020-06-17 19:27:44 +0000\`.`,
          },
        },
      },
    },
    message: { const: 'success' },
  },
});

/**
 * Reads the requested page of addresses. Without `email`, both days are required.
 *
 * @param bounds `always`: the days also apply together with an email. `unless-email`: with an email, the days are
 * ignored
 * @throws {BadRequest} with the invalid parameter, or with all missing ones
 */
export function readPage(query: Record<string, Json>, bounds: 'always' | 'unless-email'): Page {
  const { email: sent, sort_direction } = query;
  const email = isGiven(sent) ? normalizeEmail(withPlus(String(sent))) : undefined;
  if (isGiven(sent) && email === undefined) {
    throw new BadRequest(INVALID_EMAIL);
  }
  const { start, end } = readDays(query, email === undefined ? "'email'" : undefined);
  const bounded = email === undefined || bounds === 'always';
  return {
    ...(email !== undefined && { email }),
    from: bounded && start !== undefined ? toIso(start) : '-infinity',
    to: bounded && end !== undefined ? toIso(end) : 'infinity',
    direction: sort_direction === 'asc' ? 'asc' : 'desc',
    limit: readWholeNumber(query, 'limit', { from: 1, to: MAX_LIMIT, otherwise: DEFAULT_LIMIT }),
    offset: readOffset(query),
  };
}

/**
 * Creates the operation that unsubscribes addresses and marks them as hard bounces. It exists under two names.
 *
 * @param word last part of its path
 */
export function blocklisting(word: 'blocklist' | 'blacklist', description: string): QueuedOperation {
  return {
    ...addressOperation,
    id: `email.${word}`,
    path: `/email/${word}`,
    permission: 'email.blacklist',
    summary: 'Unsubscribe addresses and mark them as hard bounces',
    description,
    body: { type: 'object', required: ['email'], properties: { email: addresses } },
    example: { body: { email: ['gone@example.com'] }, reply: { message: 'success' } },
    plan: (_caller, body) => planChange(body, { state: 'unsubscribed', hard_bounced: true }),
  };
}

import { BadRequest } from '../../errors.ts';
import type { AcceptedEmailChange } from '../../jobs/envelope.ts';
import { normalizeEmail } from '../../profile/addresses.ts';
import { emailOf, INVALID_EMAIL, isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { toIso } from '../../profile/time.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { Page } from '../../store/suppression-lists.ts';
import { countedReply, email, judge, planOf, refusal, requiredElements } from '../identity/elements.ts';
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

/** The body's list of addresses. */
export const addresses = listOrOne(email, 'Email addresses. They need not belong to a user.');

/** What the operations that change a list of addresses have in common. */
export const ofAddresses = {
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
 * The plan that changes each address of the body alike; one that cannot be read fails alone.
 *
 * @throws {BadRequest|ApiError} without a valid address, and with too many
 */
export function planChange(
  body: Record<string, Json>,
  change: Pick<AcceptedEmailChange, 'state' | 'hard_bounced' | 'marked_as_spam'>,
): Plan {
  const elements = requiredElements(body, FIELD, { of: 'strings', tooMany: 'tooManyIds' });
  const judged = judge(FIELD, elements, (element) => {
    const read = emailOf(element);
    return 'error' in read ? read : { kind: 'email_change' as const, ...read.identifier, ...change };
  });
  return planOf(judged, [FIELD], {});
}

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 500;
/** The parameters of a list of addresses. */
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

/** The answer with a list of addresses, `since` being the name of their time. */
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
 * Which addresses a query asks for. Without an address it needs both days.
 *
 * @param bounds `always`: the days hold beside an address too; `unless-email`: they are passed over then
 * @throws {BadRequest} naming the parameter, or all that are missing
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
 * The operation that unsubscribes addresses and marks them as hard bounces. It has two names.
 *
 * @param word the one that the path ends with
 */
export function blocklisting(word: 'blocklist' | 'blacklist', description: string): QueuedOperation {
  return {
    ...ofAddresses,
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

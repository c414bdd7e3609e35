import { BadRequest } from '../../errors.ts';
import type { AcceptedEmailChange } from '../../jobs/payloads.ts';
import { normalizeEmail } from '../../profile/addresses.ts';
import { emailOf, isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { parseTime, toIso } from '../../profile/time.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { Page } from '../../store/email-listing.ts';
import { countedReply, email, judge, planOf, refusal, requiredElements } from '../identity/elements.ts';
import type { Plan, QueuedOperation } from '../operation.ts';
import { count, listOrOne, READ_BACK_WITHIN, readOffset, readWholeNumber } from '../subscription/asked.ts';

const FIELD = 'email';

/** The body's list of addresses. */
export const addresses = listOrOne(email, 'Email addresses; nobody need have them.');

/** What the operations that change a list of addresses have in common. */
export const ofAddresses = {
  kind: 'queued',
  method: 'POST',
  bucket: 'default',
  readBackWithin: READ_BACK_WITHIN,
  replies: {
    201: {
      description: 'The changes are on disk, and unless the workers are behind the next get sees them.',
      schema: countedReply([FIELD], {}),
    },
  },
  refusals: ['tooManyIds'],
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
const DAY_OR_TIME = /^\d{4}-\d\d-\d\d(?:[Tt ]|$)/;
/** A zone whose + was not encoded. */
export const BARE_ZONE = /([Tt ]\d\d.*) (?=\d\d:?\d\d$)/;

/** The parameters of a list of addresses. */
export const listParameters: Schema = {
  type: 'object',
  properties: {
    start_date: day('Since this day, 0:00 UTC; required with end_date, unless there is an email.'),
    end_date: day('Until this day, 0:00 UTC, which is excluded; required, unless there is an email.'),
    email: { type: 'string', description: 'Only this address.', rule: 'it must be an email address' },
    limit: count(1, MAX_LIMIT, `Most addresses of the answer, ${DEFAULT_LIMIT} if absent.`),
    offset: count(0, undefined, 'Addresses to pass over, 0 if absent.'),
    sort_direction: {
      enum: ['asc', 'desc'],
      default: 'desc',
      description: '`desc`: the latest first.',
      rule: "it must be 'asc' or 'desc'",
    },
  },
};

/** A parameter that is a day. */
export function day(description: string): Schema {
  return {
    type: 'string',
    description: `YYYY-MM-DD; also with a time, from or to which it holds then. ${description}`,
    rule: 'it must be a day, YYYY-MM-DD',
  };
}

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
          [since]: { type: 'string', description: `${description} As in \`2020-06-17 19:27:44 +0000\`.` },
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
  // No address has a space: it is a + that was not encoded.
  const email = isGiven(sent) ? normalizeEmail(String(sent).replaceAll(' ', '+')) : undefined;
  if (isGiven(sent) && email === undefined) {
    throw new BadRequest("The value provided for the 'email' field is not a valid email.");
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
 * The days between which something is asked for, in epoch milliseconds.
 *
 * @param unless the parameter that would make them unnecessary, in quotes; undefined: it is there, and they need not be
 * @throws {BadRequest} naming the parameter, or all that are missing
 */
export function readDays(
  query: Record<string, Json>,
  unless: string | undefined,
): { start: number | undefined; end: number | undefined } {
  const start = readDay(query, 'start_date');
  const end = readDay(query, 'end_date');
  const missing = Object.entries({ start_date: start, end_date: end }).filter(([, day]) => day === undefined);
  if (unless !== undefined && missing.length > 0) {
    const names = missing.map(([name]) => `'${name}'`).join(' and ');
    throw new BadRequest(`${names} ${missing.length === 1 ? 'is' : 'are'} required, or ${unless}`);
  }
  if (start !== undefined && end !== undefined && start >= end) {
    throw new BadRequest("'start_date' is not valid: it must be before 'end_date'");
  }
  return { start, end };
}

/** Epoch milliseconds: of the time that is sent, or of the day's midnight, UTC. */
function readDay(query: Record<string, Json>, name: string): number | undefined {
  const value = query[name];
  if (!isGiven(value)) return undefined;
  const time =
    typeof value === 'string' && DAY_OR_TIME.test(value)
      ? parseTime(value.replace(BARE_ZONE, '$1+'))
      : undefined;
  if (time === undefined) throw new BadRequest(`'${name}' is not valid: it must be a day, YYYY-MM-DD`);
  return time;
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

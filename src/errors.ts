/**
 * Every error that a caller can get, with its status and text: the specification's words where it has some,
 * else those recorded from services that speak the same protocol.
 */
export const errors = {
  malformedRequest: { status: 400, message: 'Bad Request' },
  malformedBody: { status: 400, message: 'Error while parsing request body. Please check your syntax.' },
  bodyNotObject: { status: 400, message: 'The request body must be a JSON object.' },
  bodyTooComplex: {
    status: 400,
    message:
      'The request body must not nest deeper than 1,000 levels nor have more than 200,000 objects and arrays, 80,000 keys, or 10,000 keys in one object.',
  },
  nothingValid: {
    status: 400,
    message: "Valid data must be provided in the 'attributes', 'events', or 'purchases' fields.",
  },
  tooManyObjects: { status: 400, message: 'Max Input Length Exceeded' },
  tooManyIds: { status: 400, message: 'The max number of ids per request was exceeded' },
  tooManyIdsAndAliases: {
    status: 400,
    message: 'The max number of external_ids and aliases per request was exceeded',
  },
  mergeUpdatesNotObjects: { status: 400, message: "'merge_updates' must be an array of objects" },
  tooManyMergeUpdates: {
    status: 400,
    message: 'a single request may not contain more than 50 merge updates',
  },
  malformedMergeIdentifier: {
    status: 400,
    message:
      "identifiers must be objects with an 'external_id' property that is a string, or 'user_alias' property that is an object",
  },
  mixedMergeIdentifiers: { status: 400, message: 'identifiers must be objects of the same type' },
  extraMergeKeys: {
    status: 400,
    message: "'merge_updates' must only have 'identifier_to_merge' and 'identifier_to_keep'",
  },
  tooMuchToExport: {
    status: 400,
    message:
      "The users take more than 16 MB together: ask for fewer, or for fewer fields in 'fields_to_export'",
  },
  tooLongToExport: {
    status: 400,
    message: "A field has more than 10,000 elements: leave it out by 'fields_to_export'",
  },
  invalidSubscriptionGroup: { status: 400, message: 'Invalid subscription group ID' },
  emailAndPhone: {
    status: 400,
    message: 'Either an email address or a phone number should be provided, but not both.',
  },
  tooManySubscriptionGroups: {
    status: 400,
    message: 'The max number of subscription groups per request was exceeded',
  },
  nameTaken: { status: 400, message: 'A preference center with this name exists already' },
  tooManyPreferenceCenters: {
    status: 400,
    message: 'A workspace may have at most 1,000 preference centers: change one of those that are there',
  },
  draftPreferenceCenter: { status: 400, message: 'The preference center is a draft, which no link opens' },
  userWithoutEmail: { status: 400, message: 'The user has no email address' },
  unknownSegment: { status: 400, message: 'Invalid segment ID' },
  exportRunning: {
    status: 429,
    message: 'An export of this segment is running: wait until it is complete',
  },
  tooManyExports: {
    status: 429,
    message: 'A workspace may have at most 100 exports of segments at a time: wait until one is complete',
  },
  invalidCursor: { status: 400, message: 'Invalid cursor' },
  invalidIntegrationId: { status: 400, message: 'Invalid integration ID' },
  integrationNotActive: { status: 400, message: 'The integration is not active' },
  scimUnparsable: {
    status: 400,
    message: 'Request is unparsable, syntactically incorrect, or violates schema.',
  },
  scimInvalid: { status: 400, message: 'The request is not valid' },
  scimTooMany: { status: 400, message: 'The filter takes too long to answer. Ask for less.' },
  invalidIdempotencyKey: {
    status: 400,
    message: "'Idempotency-Key' is not valid: it must be 1 to 255 visible ASCII characters",
  },
  invalidKey: { status: 401, message: 'Invalid API Key' },
  metricsToken: { status: 401, message: 'Invalid metrics token' },
  scimUnauthorized: { status: 401, message: 'Unauthorized' },
  accessDenied: { status: 403, message: 'Access Denied' },
  scimNoFilterHere: { status: 403, message: 'A filter cannot be used here.' },
  scimResourceNotFound: { status: 404, message: 'Resource not found' },
  scimUserNotFound: { status: 404, message: 'User not found' },
  notFound: { status: 404, message: 'Not Found' },
  nothingHere: {
    status: 404,
    message:
      'Not Found: this is Penstock. /docs describes its API, and /openapi.json is the OpenAPI document',
  },
  unknownPreferenceCenter: { status: 404, message: 'Preference center not found' },
  unknownIntegration: { status: 404, message: 'Integration not found' },
  unknownUser: { status: 404, message: 'User not found' },
  unknownDownload: { status: 404, message: 'No export has this link' },
  exportNotReady: { status: 404, message: 'The export is not ready yet' },
  exportFailed: { status: 410, message: 'The export has failed: ask for another' },
  downloadExpired: { status: 410, message: 'The link is no longer valid: ask for another export' },
  unknownRequest: { status: 404, message: 'Nothing is known of an accepted request with this id' },
  methodNotAllowed: { status: 405, message: 'Method Not Allowed' },
  bodyTooSlow: { status: 408, message: 'Request Timeout' },
  scimUserExists: { status: 409, message: 'User already exists in the database.' },
  scimVersionChanged: { status: 412, message: 'The account has another version than If-Match names.' },
  bodyTooLarge: { status: 413, message: 'Request Entity Too Large' },
  unsupportedMediaType: { status: 415, message: 'Unsupported Media Type' },
  idempotencyKeyReused: {
    status: 422,
    message: 'This Idempotency-Key came with another request within the last 24 hours',
  },
  rateLimited: { status: 429, message: 'Rate Limited' },
  syncInProgress: { status: 429, message: 'Another job is in progress' },
  headersTooLarge: { status: 431, message: 'Request Header Fields Too Large' },
  internal: { status: 500, message: 'Internal Server Error' },
  notImplemented: { status: 501, message: 'Not Implemented' },
  keyInUse: {
    status: 503,
    message: 'A request with this Idempotency-Key is still being worked on',
  },
  upstreamAway: { status: 502, message: 'The upstream cannot be reached.' },
  upstreamSilent: { status: 504, message: 'The upstream has not answered in time.' },
  unavailable: { status: 503, message: 'Service Unavailable' },
} as const satisfies Record<string, { status: number; message: string }>;

export type ErrorName = keyof typeof errors;

/** An answer and no fault: nobody reads its stack, which would take longer to make than to refuse. */
class Refusal extends Error {
  constructor(message: string) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message);
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Ends a request with an entry of the catalogue; `detail` follows its message. */
export class ApiError extends Refusal {
  override name = 'ApiError';
  readonly status: number;
  readonly headers: Record<string, string>;

  constructor(entry: ErrorName, detail?: string, headers: Record<string, string> = {}) {
    super(detail ? withDetail(errors[entry].message, detail) : errors[entry].message);
    this.status = errors[entry].status;
    this.headers = headers;
  }
}

function withDetail(message: string, detail: string): string {
  const isSentence = message.endsWith('.');
  return isSentence ? `${message} (${detail})` : `${message}: ${detail}`;
}

/** Ends a request with 400 and a text of the operation's own; `errors` name the elements that were refused. */
export class BadRequest extends Refusal {
  override name = 'BadRequest';
  readonly status = 400;
  readonly headers: Record<string, string> = {};
  readonly errors: Rejection[] | undefined;

  constructor(message: string, errors: Rejection[] = []) {
    super(message);
    this.errors = errors.length > 0 ? errors : undefined;
  }
}

/** An element of a request's array that cannot be applied. */
export type Rejection = {
  /** The field and the rule. */
  type: string;
  /** Name of the array. */
  input_array: string;
  /** Place in that array. */
  index: number;
};

import type { Refusal, RefusalCause } from './profile/refusal.ts';

/** The texts and the status of an error that an API client can get. */
interface CatalogueEntry {
  status: number;
  /** The text in the specification, or in services with the same API. Clients compare it. */
  message: string;
  /** Stable code for clients. Absent in SCIM errors, whose body has the form of RFC 7644. */
  code?: string;
  /** The first sentence of `detail`, unless the code that refuses the request gives a sentence with values. */
  meaning?: string;
  /** Action for the client; the last sentence of `detail`. */
  remedy?: string;
  /** Reason and field that are stored for a refused element. Absent if the error never refuses a single element. */
  cause?: RefusalCause;
}

/**
 * Every error that a client can get, by status. docs/errors.md is generated from the codes, meanings and remedies.
 */
export const errors = {
  malformedRequest: {
    status: 400,
    message: 'Bad Request',
    code: 'malformed_request',
    meaning: 'The request is not valid HTTP, or has no single Host header.',
    remedy: 'Check the request line and the headers.',
  },
  malformedBody: {
    status: 400,
    message: 'Error while parsing request body. Please check your syntax.',
    code: 'malformed_body',
    meaning: 'The body is not valid JSON in UTF-8.',
    remedy: 'Correct the body at the position that `message` names.',
  },
  bodyNotObject: {
    status: 400,
    message: 'The request body must be a JSON object.',
    code: 'body_not_object',
    meaning: 'The body is valid JSON, but not an object.',
    remedy: 'Send a JSON object, for example `{}`.',
  },
  bodyTooComplex: {
    status: 400,
    message:
      'The request body must not nest deeper than 1,000 levels nor have more than 200,000 objects and arrays, 80,000 keys, or 10,000 keys in one object.',
    code: 'body_too_complex',
    meaning: 'The body has too many levels, objects, arrays or keys.',
    remedy: 'Split the request into smaller requests.',
  },
  nothingValid: {
    status: 400,
    message: "Valid data must be provided in the 'attributes', 'events', or 'purchases' fields.",
    code: 'nothing_valid',
    meaning:
      'The request has no object that can be accepted. `errors` names the rule of each refused object.',
    remedy: 'Correct the objects and send the request again.',
  },
  tooManyObjects: {
    status: 400,
    message: 'Max Input Length Exceeded',
    code: 'too_many_objects',
    meaning: 'An array has more objects than the operation accepts.',
    remedy: 'Split the objects over several requests.',
    cause: { reason: 'too_many', field: '' },
  },
  bulkBodyTooLarge: {
    status: 400,
    message: 'Request Entity Too Large',
    code: 'bulk_body_too_large',
    meaning: 'With `VENDOR_RULES=current`: the body of `/users/track/bulk` has more than 2 MB.',
    remedy: 'Split the request into smaller requests.',
  },
  tooManyIds: {
    status: 400,
    message: 'The max number of ids per request was exceeded',
    code: 'too_many_ids',
    meaning: 'The request has more ids than the operation accepts.',
    remedy: 'Split the ids over several requests.',
    cause: { reason: 'too_many', field: '' },
  },
  tooManyIdsAndAliases: {
    status: 400,
    message: 'The max number of external_ids and aliases per request was exceeded',
    code: 'too_many_ids_and_aliases',
    meaning: 'The request has more ids and aliases than the operation accepts.',
    remedy: 'Split the ids and aliases over several requests.',
  },
  mergeUpdatesNotObjects: {
    status: 400,
    message: "'merge_updates' must be an array of objects",
    code: 'merge_updates_not_objects',
    meaning: '`merge_updates` is missing, empty or has an element that is not an object.',
    remedy: 'Send an array of 1 to 50 objects.',
  },
  tooManyMergeUpdates: {
    status: 400,
    message: 'a single request may not contain more than 50 merge updates',
    code: 'too_many_merge_updates',
    meaning: '`merge_updates` has more than 50 elements.',
    remedy: 'Split the merge updates over several requests.',
  },
  malformedMergeIdentifier: {
    status: 400,
    message:
      "identifiers must be objects with an 'external_id' property that is a string, or 'user_alias' property that is an object",
    code: 'malformed_merge_identifier',
    meaning: 'An identifier in `merge_updates` is not valid.',
    remedy: 'Correct the element that `errors` names.',
    cause: { reason: 'invalid', field: '' },
  },
  mixedMergeIdentifiers: {
    status: 400,
    message: 'identifiers must be objects of the same type',
    code: 'mixed_merge_identifiers',
    meaning: 'The two identifiers of a merge update have different types.',
    remedy: 'Use the same type for both identifiers.',
    cause: { reason: 'conflict', field: '' },
  },
  extraMergeKeys: {
    status: 400,
    message: "'merge_updates' must only have 'identifier_to_merge' and 'identifier_to_keep'",
    code: 'extra_merge_keys',
    meaning: 'An element of `merge_updates` has an unknown key.',
    remedy: 'Remove the unknown key.',
    cause: { reason: 'conflict', field: 'merge_updates' },
  },
  tooMuchToExport: {
    status: 400,
    message:
      "The users take more than 16 MB together: ask for fewer, or for fewer fields in 'fields_to_export'",
    code: 'too_much_to_export',
    meaning: 'The users take more than 16 MB together.',
    remedy: 'Ask for fewer users, or for fewer fields in `fields_to_export`.',
  },
  tooLongToExport: {
    status: 400,
    message: "A field has more than 10,000 elements: leave it out by 'fields_to_export'",
    code: 'too_long_to_export',
    meaning: 'A field of a user has more than 10,000 elements.',
    remedy: 'Leave the field out of `fields_to_export`.',
  },
  invalidSubscriptionGroup: {
    status: 400,
    message: 'Invalid subscription group ID',
    code: 'invalid_subscription_group',
    meaning: 'The workspace has no subscription group with this id.',
    remedy: 'Use the id of a subscription group of the workspace.',
    cause: { reason: 'unknown_group', field: 'subscription_group_id' },
  },
  emailAndPhone: {
    status: 400,
    message: 'Either an email address or a phone number should be provided, but not both.',
    code: 'email_and_phone',
    meaning: 'The request has email addresses and phone numbers.',
    remedy: 'Send one request for the email addresses and another for the phone numbers.',
    cause: { reason: 'conflict', field: '' },
  },
  tooManySubscriptionGroups: {
    status: 400,
    message: 'The max number of subscription groups per request was exceeded',
    code: 'too_many_subscription_groups',
    meaning: 'The request has more subscription groups than the operation accepts.',
    remedy: 'Split the subscription groups over several requests.',
  },
  nameTaken: {
    status: 400,
    message: 'A preference center with this name already exists',
    code: 'name_taken',
    meaning: 'Another preference center of the workspace has this name.',
    remedy: 'Choose another name.',
  },
  tooManyPreferenceCenters: {
    status: 400,
    message: 'A workspace may have at most 1,000 preference centers. Change an existing one.',
    code: 'too_many_preference_centers',
    meaning: 'The workspace has 1,000 preference centers, which is the limit.',
    remedy: 'Change an existing preference center.',
  },
  draftPreferenceCenter: {
    status: 400,
    message: 'The preference center is a draft. Set its state to active before creating links.',
    code: 'draft_preference_center',
    meaning: 'The preference center is a draft.',
    remedy: 'Set its `state` to `active` first.',
  },
  userWithoutEmail: {
    status: 400,
    message: 'The user has no email address',
    code: 'user_without_email',
    meaning: 'The user has no email address.',
    remedy: 'Add an email address to the user first.',
  },
  unknownSegment: {
    status: 400,
    message: 'Invalid segment ID',
    code: 'unknown_segment',
    meaning: 'The workspace has no segment with this id.',
    remedy: 'Take an id from `GET /segments/list`.',
  },
  invalidCursor: {
    status: 400,
    message: 'Invalid cursor',
    code: 'invalid_cursor',
    meaning: '`cursor` is not a cursor of this list.',
    remedy: 'Take the cursor from the `Link` header, or start again without a cursor.',
  },
  invalidIntegrationId: {
    status: 400,
    message: 'Invalid integration ID',
    code: 'invalid_integration_id',
    meaning: 'The integration id is not a UUID.',
    remedy: 'Take an id from `GET /cdi/integrations`.',
  },
  integrationNotActive: {
    status: 400,
    message: 'The integration is not active',
    code: 'integration_not_active',
    meaning: 'The integration is paused.',
    remedy: 'Resume the integration first.',
  },
  scimUnparsable: {
    status: 400,
    message: 'Request is unparsable, syntactically incorrect, or violates schema.',
  },
  scimInvalid: { status: 400, message: 'The request is not valid' },
  scimTooMany: { status: 400, message: 'The filter takes too long to answer. Ask for less.' },
  invalidIdempotencyKey: {
    status: 400,
    message: "'Idempotency-Key' is not valid: it must be 1 to 255 visible ASCII characters",
    code: 'invalid_idempotency_key',
    meaning:
      '`Idempotency-Key` is empty, is longer than 255 characters or has characters other than visible ASCII.',
    remedy: 'Send a UUID, for example.',
  },
  invalidRequest: {
    status: 400,
    message: 'Bad Request',
    code: 'invalid_request',
    meaning: 'A field or a parameter is missing or not valid. `message` names the field and the rule.',
    remedy: 'Correct the field and send the request again.',
  },
  invalidKey: {
    status: 401,
    message: 'Invalid API Key',
    code: 'invalid_key',
    meaning: 'The `Authorization` header has no API key that this server accepts.',
    remedy: 'Send `Authorization: Bearer` and a valid API key.',
  },
  metricsToken: {
    status: 401,
    message: 'Invalid metrics token',
    code: 'invalid_metrics_token',
    meaning: 'The `Authorization` header does not have the metrics token of this server.',
    remedy: 'Send `Authorization: Bearer` and the value of `METRICS_TOKEN`.',
  },
  scimUnauthorized: { status: 401, message: 'Unauthorized' },
  scimNoFilterHere: { status: 403, message: 'A filter cannot be used here.' },
  permissionMissing: {
    status: 403,
    message: 'Access Denied',
    code: 'permission_missing',
    meaning: 'The API key lacks the permission of this operation.',
    remedy: 'Use a key that has the permission.',
  },
  addressNotAllowed: {
    status: 403,
    message: 'Access Denied',
    code: 'address_not_allowed',
    meaning: 'The request comes from an address that is not in the allowlist of the API key.',
    remedy: 'Add the address to the allowlist of the key, or send from an allowed address.',
  },
  scimResourceNotFound: { status: 404, message: 'Resource not found' },
  scimUserNotFound: { status: 404, message: 'User not found' },
  notFound: {
    status: 404,
    message: 'Not Found',
    code: 'not_found',
    meaning: 'No operation and no page has this path.',
    remedy: 'Compare the path with the list of operations at `/docs`.',
  },
  nothingHere: {
    status: 404,
    message:
      'Not Found: this is Penstock. /docs describes its API, and /openapi.json is the OpenAPI document',
    code: 'nothing_here',
    meaning: 'The address of the server has no page of its own.',
    remedy: 'Open `/docs`.',
  },
  unknownPreferenceCenter: {
    status: 404,
    message: 'Preference center not found',
    code: 'unknown_preference_center',
    meaning: 'The workspace has no preference center with this id.',
    remedy: 'Take an id from `GET /preference_center/v1/list`.',
  },
  unknownIntegration: {
    status: 404,
    message: 'Integration not found',
    code: 'unknown_integration',
    meaning: 'The workspace has no integration with this id.',
    remedy: 'Take an id from `GET /cdi/integrations`.',
  },
  unknownUser: {
    status: 404,
    message: 'User not found',
    code: 'unknown_user',
    meaning: 'The workspace has no user with this id.',
    remedy: 'Check the id of the user.',
  },
  unknownDownload: {
    status: 404,
    message: 'Export not found. Check the URL, or request a new export.',
    code: 'unknown_download',
    meaning: 'No export has this link.',
    remedy: 'Check the link, or request a new export.',
  },
  exportNotReady: {
    status: 404,
    message: 'The export is not ready yet',
    code: 'export_not_ready',
    meaning: 'The export is running.',
    remedy: 'Try again when the export is complete.',
  },
  unknownRequest: {
    status: 404,
    message: 'No accepted request with this id is known',
    code: 'unknown_request',
    meaning: 'The workspace has no record of an accepted request with this id.',
    remedy: 'Check the id. A record expires after some time.',
  },
  trailingSlash: {
    status: 404,
    message: 'Not Found',
    code: 'trailing_slash',
    meaning: 'The path differs from a known path only by a trailing slash.',
    remedy: 'Send the request to the known path.',
  },
  methodNotAllowed: {
    status: 405,
    message: 'Method Not Allowed',
    code: 'method_not_allowed',
    meaning: 'The path exists, but not with this method.',
    remedy: 'Use a method that the `Allow` header lists.',
  },
  bodyTooSlow: {
    status: 408,
    message: 'Request Timeout',
    code: 'body_too_slow',
    meaning: 'The request did not arrive completely in time.',
    remedy: 'Send the request again.',
  },
  scimUserExists: { status: 409, message: 'User already exists in the database.' },
  exportFailed: {
    status: 410,
    message: 'The export failed. Request a new one.',
    code: 'export_failed',
    meaning: 'The export failed.',
    remedy: 'Request a new export.',
  },
  downloadExpired: {
    status: 410,
    message: 'The link has expired. Request a new export.',
    code: 'download_expired',
    meaning: 'The link has expired.',
    remedy: 'Request a new export.',
  },
  scimVersionChanged: {
    status: 412,
    message:
      'The account was changed: its version differs from the If-Match header. Read it again, then send the change with the new version.',
  },
  bodyTooLarge: {
    status: 413,
    message: 'Request Entity Too Large',
    code: 'body_too_large',
    meaning: 'The body has more bytes than the operation accepts.',
    remedy: 'Split the request into smaller requests.',
  },
  unsupportedMediaType: {
    status: 415,
    message: 'Unsupported Media Type',
    code: 'unsupported_media_type',
    meaning: 'The content type or the content encoding is not supported.',
    remedy: 'Use a value that `message` lists.',
  },
  idempotencyKeyReused: {
    status: 422,
    message:
      'This Idempotency-Key was used for a different request in the last 24 hours. Use a new key, or send the original request again.',
    code: 'idempotency_key_reused',
    meaning: 'The same `Idempotency-Key` was used for a different request in the last 24 hours.',
    remedy: 'Use a new key, or send the original request again.',
  },
  exportRunning: {
    status: 429,
    message: 'An export of this segment is running: wait until it is complete',
    code: 'export_running',
    meaning: 'An export of this segment is running.',
    remedy: 'Wait until the export is complete.',
  },
  tooManyExports: {
    status: 429,
    message: 'A workspace may have at most 100 exports of segments at a time: wait until one is complete',
    code: 'too_many_exports',
    meaning: 'The workspace has 100 running exports of segments, which is the limit.',
    remedy: 'Wait until one export is complete.',
  },
  rateLimited: {
    status: 429,
    message: 'Rate Limited',
    code: 'rate_limited',
    meaning: 'The workspace has used the whole rate limit.',
    remedy: 'Wait for the seconds in `Retry-After`.',
  },
  syncInProgress: {
    status: 429,
    message: 'Another job is in progress',
    code: 'sync_in_progress',
    meaning: 'A sync of this integration is running.',
    remedy: 'Wait until the sync is complete.',
  },
  headersTooLarge: {
    status: 431,
    message: 'Request Header Fields Too Large',
    code: 'headers_too_large',
    meaning: 'The headers or the URL are longer than 16 KB, or there are more than 1,000 header fields.',
    remedy: 'Send fewer or shorter headers.',
  },
  internal: {
    status: 500,
    message: 'Internal Server Error',
    code: 'internal_error',
    meaning: 'The server met an error that it did not expect.',
    remedy:
      'Send the request again with the same `Idempotency-Key`. If the error stays, give the `X-Request-Id` to the operator.',
  },
  notImplemented: {
    status: 501,
    message: 'Not Implemented',
    code: 'not_implemented',
    meaning: 'Penstock does not have this endpoint.',
    remedy: 'Use another endpoint.',
  },
  upstreamAway: {
    status: 502,
    message: 'The upstream cannot be reached.',
    code: 'upstream_unreachable',
    meaning: 'The service at `PROXY_UPSTREAM` cannot be reached.',
    remedy: 'Send the request again later.',
  },
  keyInUse: {
    status: 503,
    message: 'A request with this Idempotency-Key is still being worked on',
    code: 'idempotency_key_in_use',
    meaning: 'The first request with this `Idempotency-Key` is still being processed.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  unavailable: {
    status: 503,
    message: 'Service Unavailable',
    code: 'unavailable',
    meaning: 'A store of the server is not available now.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  databaseUnavailable: {
    status: 503,
    message: 'Service Unavailable',
    code: 'database_unavailable',
    meaning: 'The server cannot reach Postgres, or Postgres did not answer in time.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  redisUnavailable: {
    status: 503,
    message: 'Service Unavailable',
    code: 'redis_unavailable',
    meaning: 'The server cannot reach Redis, or Redis refuses commands.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  queueUnavailable: {
    status: 503,
    message: 'Service Unavailable',
    code: 'queue_unavailable',
    meaning: 'The queue did not confirm that it stored the objects.',
    remedy:
      'Send the request again after the seconds in `Retry-After`, with the same `Idempotency-Key` if it had one.',
  },
  queueFull: {
    status: 503,
    message: 'Service Unavailable',
    code: 'queue_full',
    meaning: 'Too many jobs wait in the queue.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  redisMemoryFull: {
    status: 503,
    message: 'Service Unavailable',
    code: 'redis_memory_full',
    meaning: 'Redis uses too much of its memory.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  tooManyPendingObjects: {
    status: 503,
    message: 'Service Unavailable',
    code: 'too_many_pending_objects',
    meaning: 'Too many objects wait for the queue to store them.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  tooManyPendingBytes: {
    status: 503,
    message: 'Service Unavailable',
    code: 'too_many_pending_bytes',
    meaning: 'Objects with too many bytes wait for the queue to store them.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  workspaceOverShare: {
    status: 503,
    message: 'Service Unavailable',
    code: 'workspace_over_share',
    meaning:
      'This workspace has more objects waiting than there is free space: one workspace may fill half of the queue, two a third each.',
    remedy:
      'Send more slowly until its objects have been applied. Send the request again after the seconds in `Retry-After`.',
  },
  queueHalfFull: {
    status: 503,
    message: 'Service Unavailable',
    code: 'queue_half_full',
    meaning: 'The queue is half full, and bulk requests yield to other requests.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  tooManyBodyBytes: {
    status: 503,
    message: 'Service Unavailable',
    code: 'too_many_body_bytes',
    meaning: 'Request bodies take all the memory that is set aside for them.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  tooManyUnreadResponses: {
    status: 503,
    message: 'Service Unavailable',
    code: 'too_many_unread_responses',
    meaning: 'Responses that clients have not read take too much memory.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  tooManyHeaderBytes: {
    status: 503,
    message: 'Service Unavailable',
    code: 'too_many_header_bytes',
    meaning: 'Request headers take all the memory that is set aside for them.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  serverBusy: {
    status: 503,
    message: 'Service Unavailable',
    code: 'server_busy',
    meaning: 'The server has more work than it can begin in time.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  rendererBusy: {
    status: 503,
    message: 'Service Unavailable',
    code: 'renderer_busy',
    meaning: 'Too many preference center pages are being rendered.',
    remedy: 'Send the request again after the seconds in `Retry-After`.',
  },
  upstreamSilent: {
    status: 504,
    message: 'The upstream has not answered in time.',
    code: 'upstream_timeout',
    meaning: 'The service at `PROXY_UPSTREAM` has not answered in time.',
    remedy: 'Send the request again later.',
  },
} as const satisfies Record<string, CatalogueEntry>;

export type ErrorName = keyof typeof errors;

/** Values that the code that refuses a request adds to the catalogue entry. */
interface ErrorOptions {
  /** Replaces the message of the entry. */
  message?: string;
  /** Appended to the message of the entry. */
  suffix?: string;
  /** One sentence with the value and the limit; replaces the meaning of the entry in `detail`. */
  fact?: string | undefined;
  headers?: Record<string, string>;
  /** The elements that were refused. */
  rejected?: readonly Rejection[];
}

/**
 * Ends a request with the error of a catalogue entry. It has no stack trace, because creating one would take longer than
 * the rest of the refusal.
 */
export class ApiError extends Error {
  override name = 'ApiError';
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly entry: ErrorName;
  readonly fact: string | undefined;
  readonly rejected: readonly Rejection[];

  constructor(
    entry: ErrorName,
    { message = errors[entry].message, suffix, fact, headers = {}, rejected = [] }: ErrorOptions = {},
  ) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(suffix ? withSuffix(message, suffix) : message);
    Error.stackTraceLimit = stackTraceLimit;
    this.status = errors[entry].status;
    this.headers = headers;
    this.entry = entry;
    this.fact = fact;
    this.rejected = rejected;
  }
}

function withSuffix(message: string, suffix: string): string {
  const isSentence = message.endsWith('.');
  return isSentence ? `${message} (${suffix})` : `${message}: ${suffix}`;
}

/** Returns the members of an error body other than `message`. Undefined for an error of SCIM. */
export function explain(entry: ErrorName, fact?: string): { code: string; detail: string } | undefined {
  const { code, meaning, remedy }: CatalogueEntry = errors[entry];
  if (code === undefined) return undefined;
  return { code, detail: `${fact ?? meaning} ${remedy}` };
}

/** Returns the body of the error of a catalogue entry. */
export function errorBodyOf(
  entry: ErrorName,
  fact?: string,
): { message: string; code?: string; detail?: string } {
  return { message: errors[entry].message, ...explain(entry, fact) };
}

/** Ends a request with 400, the code `invalid_request`, and the text of the rule that the request breaks. */
export class BadRequest extends ApiError {
  override name = 'BadRequest';
  readonly refusal: Refusal;

  constructor(refusal: Refusal, fact?: string) {
    super('invalidRequest', { message: refusal.error, fact });
    this.refusal = refusal;
  }
}

/** Returns the refusal of a single element for the reason of a catalogue entry. */
export function refusalBy(entry: ErrorName): Refusal {
  const { message, cause = { reason: 'invalid', field: '' } }: CatalogueEntry = errors[entry];
  return { ...cause, error: message };
}

/** Returns the refusal of the single element that made the whole request fail. */
export function refusalOf(error: ApiError): Refusal {
  return error instanceof BadRequest ? error.refusal : { ...refusalBy(error.entry), error: error.message };
}

/**
 * An entry of `errors` or `warnings` in a response body. A type alias, because TypeScript does not assign an interface to
 * the type of JSON objects.
 */
export type RejectionEntry = {
  /** The field and the rule. */
  type: string;
  /** Name of the array. */
  input_array: string;
  /** Position in the array. */
  index: number;
};

/** An element of an array in the request that cannot be applied. */
export interface Rejection extends RejectionEntry, RefusalCause {}

export function rejectionOf(
  { error, reason, field }: Refusal,
  { input_array, index }: Pick<Rejection, 'input_array' | 'index'>,
): Rejection {
  return { type: error, input_array, index, reason, field };
}

/** Returns the entries of a response for refused elements. */
export function entriesOf(rejected: readonly Rejection[]): RejectionEntry[] {
  return rejected.map(({ type, input_array, index }) => ({ type, input_array, index }));
}

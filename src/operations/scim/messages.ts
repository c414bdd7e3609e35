import { ApiError, type ErrorName, errors } from '../../errors.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { RefusedRequest } from '../operation.ts';

export const USER = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const LIST_RESPONSE = 'urn:ietf:params:scim:api:messages:2.0:ListResponse';
export const PATCH_OP = 'urn:ietf:params:scim:api:messages:2.0:PatchOp';
const ERROR = 'urn:ietf:params:scim:api:messages:2.0:Error';

/** RFC 7644 §3.1. Ours is always in UTF-8, as JSON is. */
export const SCIM_TYPE = 'application/scim+json';

/** Every path of SCIM begins with it. */
export const SCIM_ROOT = '/scim/v2';

/** Endpoints of RFC 7644 §3.2 that a service may have, and that this one says it has not: 501 (§3.11, §3.12). */
export const NOT_IMPLEMENTED = ['/Me', '/Bulk', '/.search', '/Users/.search'].map(
  (path) => `${SCIM_ROOT}${path}`,
);

/** The body of an error: `status` is an integer here, as the specification has it, and no string. */
export function scimErrorBody({ message, errors: details, status }: RefusedRequest): Json {
  const scimType = (details as { scimType?: ScimType } | undefined)?.scimType ?? usualType(message, status);
  return { schemas: [ERROR], ...(scimType && { scimType }), detail: message, status };
}

/** RFC 7644 §3.12: a 400 and a uniqueness conflict say of which kind they are. */
function usualType(message: string, status: number): ScimType | undefined {
  if (status === 409) return 'uniqueness';
  if (status !== 400) return undefined;
  const ofSyntax = [errors.malformedRequest, errors.malformedBody, errors.bodyNotObject];
  return ofSyntax.some((entry) => message.startsWith(entry.message)) ? 'invalidSyntax' : 'invalidValue';
}

const scimErrorSchema: Schema = {
  type: 'object',
  required: ['schemas', 'detail', 'status'],
  properties: {
    schemas: { type: 'array', items: { const: ERROR } },
    scimType: { type: 'string', description: 'The kind of a 400 or 409, by RFC 7644 §3.12.' },
    detail: { type: 'string' },
    status: { type: 'integer' },
  },
};

/** What every operation of SCIM has in common. */
export const scim = {
  auth: 'scim',
  permission: 'scim',
  bucket: 'scim',
  contentType: SCIM_TYPE,
  errorBody: scimErrorBody,
  errorSchema: scimErrorSchema,
} as const;

/** The kinds of errors of RFC 7644 §3.12 that we have, and that of RFC 9865 §3.2. */
type ScimType =
  | 'invalidFilter'
  | 'tooMany'
  | 'uniqueness'
  | 'mutability'
  | 'invalidSyntax'
  | 'invalidPath'
  | 'noTarget'
  | 'invalidValue'
  | 'invalidCursor';

/** Ends a request of SCIM with an entry of the catalogue, or with a text of its own. */
export class ScimError extends ApiError {
  override name = 'ScimError';
  readonly errors: { scimType?: ScimType };

  constructor(entry: ErrorName, scimType?: ScimType, text?: string) {
    super(entry, text === undefined ? {} : { message: text });
    this.errors = scimType ? { scimType } : {};
  }
}

/** 400, with the field and its rule. */
export function invalid(text: string, scimType: ScimType = 'invalidValue'): ScimError {
  return new ScimError('scimInvalid', scimType, text);
}

/** Most workspaces, permissions or teams in one list of an account. */
export const MOST = 500;

/** Characters of a text. */
export const LONGEST = 255;

/**
 * Values of one account, and of all operations of one patch: 500 workspaces with 50 permissions in each. An account of so
 * many is read, compared and written within some tens of milliseconds.
 */
export const MAX_VALUES = 25_000;

/** What was not to be exceeded is charged here. @throws {ScimError} when there is nothing left */
export type Spend = (work: number) => void;

/** Work that may be done, as a number that only falls. */
export function createBudget(most: number, refusal: () => string, scimType?: ScimType): Spend {
  let left = most;
  return (work) => {
    left -= work;
    if (left < 0) throw invalid(refusal(), scimType);
  };
}

/** For the values of one account. */
export function accountBudget(): Spend {
  return createBudget(
    MAX_VALUES,
    () => `'permissions' is not valid: an account has at most ${MAX_VALUES} values`,
  );
}

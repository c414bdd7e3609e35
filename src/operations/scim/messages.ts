import { ApiError, type ErrorName, errors } from '../../errors.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { RefusedRequest } from '../operation.ts';

export const USER = 'urn:ietf:params:scim:schemas:core:2.0:User';
export const LIST_RESPONSE = 'urn:ietf:params:scim:api:messages:2.0:ListResponse';
export const PATCH_OP = 'urn:ietf:params:scim:api:messages:2.0:PatchOp';
const ERROR = 'urn:ietf:params:scim:api:messages:2.0:Error';

/** Media type of SCIM (RFC 7644 §3.1). Answers are always in UTF-8, as JSON is. */
export const SCIM_TYPE = 'application/scim+json';

/** Common prefix of all SCIM paths. */
export const SCIM_ROOT = '/scim/v2';

/** Optional endpoints of RFC 7644 §3.2 that are not implemented. They answer 501 (§3.11, §3.12). */
export const NOT_IMPLEMENTED = ['/Me', '/Bulk', '/.search', '/Users/.search'].map(
  (path) => `${SCIM_ROOT}${path}`,
);

/** Builds the body of an error. `status` is an integer, as in the specification, and not a string. */
export function scimErrorBody({ message, errors: details, status }: RefusedRequest): Json {
  const scimType = (details as { scimType?: ScimType } | undefined)?.scimType ?? usualType(message, status);
  return { schemas: [ERROR], ...(scimType && { scimType }), detail: message, status };
}

/** Returns the `scimType` of a 400 or a uniqueness conflict (RFC 7644 §3.12). */
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

/** Members that all SCIM operations share. */
export const scim = {
  auth: 'scim',
  permission: 'scim',
  bucket: 'scim',
  contentType: SCIM_TYPE,
  errorBody: scimErrorBody,
  errorSchema: scimErrorSchema,
} as const;

/** The error types of RFC 7644 §3.12 in use, and `invalidCursor` of RFC 9865 §3.2. */
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

/** An error answer of SCIM, with the text of the catalogue or its own text. */
export class ScimError extends ApiError {
  override name = 'ScimError';
  readonly errors: { scimType?: ScimType };

  constructor(entry: ErrorName, scimType?: ScimType, text?: string) {
    super(entry, text === undefined ? {} : { message: text });
    this.errors = scimType ? { scimType } : {};
  }
}

/** Creates a 400 with the field and its rule. */
export function invalid(text: string, scimType: ScimType = 'invalidValue'): ScimError {
  return new ScimError('scimInvalid', scimType, text);
}

/** Maximum number of workspaces, permissions or teams in one list of an account. */
export const MAX_LIST_LENGTH = 500;

/** Maximum number of characters of a text. */
export const MAX_TEXT_LENGTH = 255;

/**
 * Maximum number of values of an account, and of all operations of a patch: 500 workspaces with 50 permissions each.
 * Reading, comparing and writing an account of this size takes tens of milliseconds.
 */
export const MAX_VALUES = 25_000;

/**
 * Charges work to a budget.
 * @throws {ScimError} if the budget is exhausted
 */
export type Spend = (work: number) => void;

/** Creates a budget of `limit` units of work. Charging more throws `refusal` as a 400. */
export function createBudget(limit: number, refusal: () => string, scimType?: ScimType): Spend {
  let left = limit;
  return (work) => {
    left -= work;
    if (left < 0) throw invalid(refusal(), scimType);
  };
}

/** Creates the budget for the values of one account. */
export function accountBudget(): Spend {
  return createBudget(
    MAX_VALUES,
    () => `'permissions' is not valid: an account has at most ${MAX_VALUES} values`,
  );
}

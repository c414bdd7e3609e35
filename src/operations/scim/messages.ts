import { errors } from '../../errors.ts';
import type { Json } from '../../profile/json.ts';
import type { Schema } from '../../schemas/schema.ts';
import type { ScimType } from './scim-error.ts';

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
export function scimErrorBody(message: string, details: Json | undefined, status: number): Json {
  const scimType = (details as { scimType?: ScimType } | undefined)?.scimType ?? usualType(message, status);
  return { schemas: [ERROR], ...(scimType && { scimType }), detail: message, status };
}

/** RFC 7644 §3.12: a 400 and a uniqueness conflict say of which kind they are. */
function usualType(message: string, status: number): ScimType | undefined {
  if (status === 409) return 'uniqueness';
  if (status !== 400) return undefined;
  const ofSyntax = [errors.malformedRequest, errors.malformedBody, errors.bodyNotObject];
  return ofSyntax.some((entry) => entry.message === message) ? 'invalidSyntax' : 'invalidValue';
}

export const scimErrorSchema: Schema = {
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

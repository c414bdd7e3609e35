import { ApiError, type ErrorName } from '../../errors.ts';

/** The kinds of errors of RFC 7644 §3.12 that we have, and that of RFC 9865 §3.2. */
export type ScimType =
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
    super(entry);
    if (text !== undefined) this.message = text;
    this.errors = scimType ? { scimType } : {};
  }
}

/** 400, with the field and its rule. */
export function invalid(text: string, scimType: ScimType = 'invalidValue'): ScimError {
  return new ScimError('scimInvalid', scimType, text);
}

import { causeOf } from '../../src/operations/rejection-reasons.ts';
import type { Json } from '../../src/profile/json.ts';

/** Returns `errors` of an answer. @throws if the text of an entry has no reason in src/operations/rejection-reasons.ts */
export function withKnownReasons<Errors extends Json | undefined>(errors: Errors): Errors {
  for (const { type, index } of (errors ?? []) as { type: string; index?: number }[])
    if (index !== undefined && causeOf({ type }).reason === 'other')
      throw new Error(`no reason in src/operations/rejection-reasons.ts matches this text: ${type}`);
  return errors;
}

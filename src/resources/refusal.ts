import { codeOf } from '../platform/format.ts';

/** Thrown if a field's value breaks its rule. The message is a complete sentence. */
export class InvalidValue extends Error {
  override name = 'InvalidValue';
}

/**
 * An error that the user can understand and fix. The command line prints it in one line, and the console shows it in
 * the form.
 */
export class Refusal extends Error {
  override name = 'Refusal';
  /** The form field next to which the message is shown. */
  readonly field: string | undefined;
  /** HTTP status of the console's response. */
  readonly status: 400 | 409 | 503;

  constructor(message: string, field?: string, status: 400 | 409 | 503 = 400) {
    super(message);
    this.field = field;
    this.status = status;
  }
}

/**
 * Creates a `catch` handler that turns a unique violation into a Refusal with this message and rethrows other errors.
 */
export function refuseTaken(words: string, field?: string): (error: unknown) => never {
  return (error) => {
    throw ['P2002', '23505'].includes(codeOf(error) ?? '') ? new Refusal(words, field, 409) : error;
  };
}

import { codeOf } from '../platform/format.ts';

/** A value of one field that breaks its rule. The message is a whole sentence. */
export class InvalidValue extends Error {
  override name = 'InvalidValue';
}

/**
 * What a person has to know and can change. The command line prints its one line, and the console shows it in the form.
 */
export class Refusal extends Error {
  override name = 'Refusal';
  /** The field of the form at which the message is shown. */
  readonly field: string | undefined;
  /** The status of the console's answer. */
  readonly status: 400 | 409;

  constructor(message: string, field?: string, status: 400 | 409 = 400) {
    super(message);
    this.field = field;
    this.status = status;
  }
}

/** For `catch`: a unique value that is taken is refused with these words; any other error goes on. */
export function refuseTaken(words: string, field?: string): (error: unknown) => never {
  return (error) => {
    throw ['P2002', '23505'].includes(codeOf(error) ?? '') ? new Refusal(words, field, 409) : error;
  };
}

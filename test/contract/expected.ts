import { expect } from 'vitest';
import { type ErrorName, errors, explain } from '../../src/errors.ts';
import type { Operation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { compile, type Schema } from '../../src/schemas/compile.ts';
import type { ApiAnswer } from '../setup/api.ts';

export function errorSchemaOf({ errorSchema }: Operation): Schema {
  return (
    errorSchema ?? { type: 'object', required: ['message'], properties: { message: { type: 'string' } } }
  );
}

/** Expects the documented answer for this error, in the form of the operation. A detail may follow its message. */
export function expectError(operation: Operation, { status, body }: ApiAnswer, entry: ErrorName): void {
  const { status: expected, message: documented } = errors[entry];
  const shown = String(body.message ?? body.detail);
  const message = shown.startsWith(documented) ? shown : documented;
  // An entry with an index names an object of the request.
  const sent = body.errors?.[0]?.index !== undefined && {
    body: operation.example.body as Record<string, Json>,
  };
  expect({ status, body }).toEqual({
    status: expected,
    body: {
      ...((operation.errorBody?.({ message, status: expected, ...sent }) as object | undefined) ?? {
        message,
      }),
      ...(operation.auth !== 'scim' && {
        code: explain(entry)!.code,
        detail: expect.stringMatching(/^[A-Z'`].+\.$/),
      }),
    },
  });
  expectFit(errorSchemaOf(operation), body);
}

export function expectFit(schema: Schema, value: unknown): void {
  const fits = compile(schema);
  fits(value);
  expect(fits.errors ?? []).toEqual([]);
}

/** Returns every status of an accepted request, because an answer that waits for the workers may be 202. */
export const acceptedStatuses = ({ replies }: Operation) => Object.keys(replies).map(Number);

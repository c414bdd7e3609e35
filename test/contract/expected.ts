import { expect } from 'vitest';
import { type ErrorName, errors } from '../../src/errors.ts';
import type { Operation } from '../../src/operations/operation.ts';
import { compile, type Schema } from '../../src/schemas/compile.ts';
import type { ApiAnswer } from '../setup/api.ts';

export function errorSchemaOf({ errorSchema }: Operation): Schema {
  return (
    errorSchema ?? { type: 'object', required: ['message'], properties: { message: { type: 'string' } } }
  );
}

/** The documented answer for this error, in the form that the operation gives its errors. */
export function expectError(operation: Operation, { status, body }: ApiAnswer, entry: ErrorName): void {
  const { status: expected, message } = errors[entry];
  expect({ status, body }).toEqual({
    status: expected,
    body: operation.errorBody?.(message, undefined, expected) ?? { message },
  });
  expectFit(errorSchemaOf(operation), body);
}

export function expectFit(schema: Schema, value: unknown): void {
  const fits = compile(schema);
  fits(value);
  expect(fits.errors ?? []).toEqual([]);
}

/** Every status with which a request can be accepted: an answer that waits for the workers may come too late. */
export const acceptedStatuses = ({ replies }: Operation) => Object.keys(replies).map(Number);

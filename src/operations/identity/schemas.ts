import type { Json } from '../../profile/json.ts';
import { prioritizations } from '../../profile/prioritization.ts';
import type { Schema } from '../../schemas/schema.ts';
import { MAX_ELEMENTS } from './elements.ts';

/** An array of a request. */
export const arrayOf = (items: Schema, description: string): Schema => ({
  type: 'array',
  minItems: 1,
  maxItems: MAX_ELEMENTS,
  items,
  description,
});

export const externalId = (description: string): Schema => ({
  type: ['string', 'integer'],
  description: `${description} At most 987 bytes.`,
});

export const aliasPart = (description: string): Schema => ({
  type: 'string',
  minLength: 1,
  description: `${description} At most 236 bytes.`,
});

export const email: Schema = { type: 'string', description: 'An email address, in any case.' };

export const phone: Schema = { type: ['string', 'integer'], description: 'A phone number in E.164.' };

export const prioritization: Schema = {
  type: 'array',
  uniqueItems: true,
  items: { enum: prioritizations },
  description:
    'Narrows the users who have the address, value by value: those with an external id, those without, the one updated last, the one updated longest ago. Nothing happens when more than one is left. Of each pair of opposites only one may be named.',
};

export const counter = (description: string): Schema => ({ type: 'integer', minimum: 0, description });

const rejectionOf = (arrays: string[]): Schema => ({
  type: 'object',
  required: ['type', 'input_array', 'index'],
  properties: {
    type: { type: 'string', description: 'The field and the rule.' },
    input_array: { enum: arrays },
    index: { type: 'integer', minimum: 0, description: 'Place in that array.' },
  },
});

/** The elements of these arrays that were refused. */
export const rejections = (arrays: string[], description: string): Schema => ({
  type: 'array',
  description,
  items: rejectionOf(arrays),
});

/** An answer with `message: success` and what was counted or listed. */
export const replySchema = (
  properties: Record<string, Schema>,
  {
    required = Object.keys(properties),
    optional = {},
  }: { required?: string[]; optional?: Record<string, Schema> } = {},
): Schema => ({
  type: 'object',
  required: [...required, 'message'],
  properties: { ...properties, message: { const: 'success' }, ...optional },
});

/** The answer to a request whose elements fail alone. */
export const countedReply = (arrays: string[], counts: Record<string, Schema>, required?: string[]): Schema =>
  replySchema(counts, {
    ...(required && { required }),
    optional: { errors: rejections(arrays, 'The elements that were refused. Absent when there are none.') },
  });

/** The body of an error answer: a message, and the elements that are to blame, if it is elements. */
export const refusal = (arrays: string[]) => ({
  errorBody: (message: string, errors: Json | undefined): Json =>
    errors === undefined ? { message } : { message, errors },
  errorSchema: {
    type: 'object',
    required: ['message'],
    properties: {
      message: { type: 'string' },
      errors: rejections(arrays, 'The elements that are to blame. Absent when it is the request as a whole.'),
    },
  } satisfies Schema,
});

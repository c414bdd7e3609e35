import type { Schema } from '../../schemas/schema.ts';

const text = (description: string): Schema => ({
  type: 'string',
  description,
  rule: 'it must be given once',
});

const projection = {
  attributes: text('Names of attributes, with commas between them: only these are answered.'),
  excludedAttributes: text('Names of attributes, with commas between them: all but these are answered.'),
};

/** What every request that is answered with a resource takes (RFC 7644 §3.9). */
export const projectionQuery: Schema = { type: 'object', properties: projection };

const count = (description: string): Schema => ({
  type: 'string',
  pattern: '^-?\\d{1,9}$',
  description,
  rule: 'it must be a whole number',
});

/** Of a list (RFC 7644 §3.4.2; `cursor` is that of RFC 9865). */
export const listQuery: Schema = {
  type: 'object',
  properties: {
    filter: text('Which accounts, for instance `userName eq "ada@example.com"`; all without it.'),
    startIndex: count('Place of the first account to answer with, from 1.'),
    count: count('Most accounts to answer with.'),
    cursor: text('Instead of `startIndex`: empty for the first page, then `nextCursor` of the page before.'),
    ...projection,
  },
};

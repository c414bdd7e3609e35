import type { Schema } from '../../schemas/compile.ts';
import { listNames } from '../../store/activity-series.ts';
import type { DirectOperation } from '../operation.ts';
import { count, readWholeNumber } from '../subscription/asked.ts';

/** Names of one page. */
const PAGE = 250;

/** The last page: each name before it costs a look-up. */
const LAST_PAGE = 80;

/** What the two lists of names have in common. */
export function listing(
  member: 'events' | 'products',
  given: Pick<DirectOperation, 'id' | 'path' | 'permission' | 'summary' | 'description'> & {
    example: string;
  },
): DirectOperation {
  const { example, ...described } = given;
  const kind = member === 'events' ? 'event' : 'product';
  const names: Schema = { type: 'array', maxItems: PAGE, items: { type: 'string' } };
  return {
    ...described,
    kind: 'direct',
    method: 'GET',
    bucket: 'events.list',
    isLarge: true,
    query: {
      type: 'object',
      properties: { page: count(0, LAST_PAGE, `Which ${PAGE} names, from the first; 0 if absent.`) },
    },
    replies: {
      200: {
        description: `${PAGE} names at most, in alphabetical order.`,
        schema: {
          type: 'object',
          required: [member, 'message'],
          properties: { [member]: names, message: { const: 'success' } },
        },
      },
    },
    example: { query: { page: '0' }, reply: { [member]: [example], message: 'success' } },

    async handle({ workspaceId }, { query }, { database }) {
      const page = readWholeNumber(query, 'page', { from: 0, to: LAST_PAGE, otherwise: 0 });
      const wanted = { kind, limit: PAGE, offset: page * PAGE } as const;
      const found = await listNames(database.pool, workspaceId, wanted);
      return { status: 200, body: { [member]: found, message: 'success' } };
    },
  };
}

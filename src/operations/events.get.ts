import { listNames } from '../store/activity-series.ts';
import { PAGE, pageOf, readCursor } from './activity/named-pages.ts';
import { cursorQuery } from './cdi/schemas.ts';
import type { DirectOperation } from './operation.ts';

const PATH = '/events';

/** GET /events: the names of custom events with their state, page by page. */
export function eventsGet(): DirectOperation {
  return {
    kind: 'direct',
    id: 'events.get',
    method: 'GET',
    path: PATH,
    permission: 'events.get',
    bucket: 'events.list',
    isLarge: true,
    summary: 'List custom events with their state',
    description: `Lists all events that were ever recorded in the workspace in alphabetical order, ${PAGE} per page. The \`Link\` header has the relative URL of the next page. It is absent on the last page. \`description\`, \`tag_names\` and \`included_in_analytics_report\` are always empty.`,
    query: cursorQuery,
    replies: {
      200: {
        description: `At most ${PAGE} events.`,
        schema: {
          type: 'object',
          required: ['events', 'message'],
          properties: {
            events: {
              type: 'array',
              maxItems: PAGE,
              items: {
                type: 'object',
                required: ['name', 'description', 'included_in_analytics_report', 'status', 'tag_names'],
                properties: {
                  name: { type: 'string' },
                  description: { type: 'null', description: 'Always null or empty.' },
                  included_in_analytics_report: { const: false },
                  status: { const: 'Active' },
                  tag_names: { type: 'array', maxItems: 0, description: 'Always null or empty.' },
                },
              },
            },
            message: { const: 'success' },
          },
        },
      },
    },
    refusals: ['invalidCursor'],
    example: { query: {}, reply: { events: [describe('signed_up')], message: 'success' } },

    async handle({ workspaceId }, { query }, { database }) {
      const after = readCursor(query, PATH);
      const wanted = { kind: 'event', limit: PAGE + 1, offset: 0, after } as const;
      const names = await listNames(database.pool, workspaceId, wanted);
      const { page, headers } = pageOf(
        PATH,
        names.map((name) => describe(name)),
      );
      return { status: 200, body: { events: page, message: 'success' }, headers };
    },
  };
}

function describe(name: string) {
  return {
    ...{ name, description: null, included_in_analytics_report: false },
    ...{ status: 'Active', tag_names: [] },
  };
}

import { listSegments } from '../store/segments.ts';
import type { DirectOperation } from './operation.ts';
import { count, readWholeNumber } from './query-parameters.ts';

/** Number of segments per page. */
const PAGE = 100;

/** Highest page number. Postgres skips the segments of earlier pages one by one. */
const LAST_PAGE = 100;

/** GET /segments/list */
export const segmentsList = (): DirectOperation => ({
  id: 'segments.list',
  kind: 'direct',
  method: 'GET',
  path: '/segments/list',
  bucket: 'default',
  permission: 'segments.list',
  summary: 'List segments',
  description: `Lists the segments of the workspace, sorted by the time of creation, ${PAGE} per page. A segment is a named filter over users. Archived segments are omitted.`,
  query: {
    type: 'object',
    properties: {
      page: count(0, LAST_PAGE, 'Number of the page, from 0 (default).'),
      sort_direction: {
        enum: ['asc', 'desc'],
        default: 'asc',
        description: '`asc`: oldest first. `desc`: newest first.',
        rule: "it must be 'asc' or 'desc'",
      },
    },
  },
  replies: {
    200: {
      description: `${PAGE} segments at most.`,
      schema: {
        type: 'object',
        required: ['segments', 'message'],
        properties: {
          segments: {
            type: 'array',
            maxItems: PAGE,
            items: {
              type: 'object',
              required: ['id', 'name', 'analytics_tracking_enabled', 'tags'],
              properties: {
                id: {
                  type: 'string',
                  description: 'Id of the segment. Other operations take it as `segment_id`.',
                },
                name: { type: 'string' },
                analytics_tracking_enabled: {
                  const: false,
                  description: 'Always false: sizes of segments are not recorded.',
                },
                tags: { type: 'array', maxItems: 0, description: 'Always empty.' },
              },
            },
          },
          message: { const: 'success' },
        },
      },
    },
  },
  example: {
    query: { sort_direction: 'desc' },
    reply: {
      segments: [
        {
          id: '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
          name: 'Readers in Germany',
          analytics_tracking_enabled: false,
          tags: [],
        },
      ],
      message: 'success',
    },
  },

  async handle({ workspaceId }, { query }, { database }) {
    const page = readWholeNumber(query, 'page', { from: 0, to: LAST_PAGE, otherwise: 0 });
    const newest = query.sort_direction === 'desc';
    const rows = await listSegments(database, workspaceId, {
      newest,
      limit: PAGE,
      offset: page * PAGE,
    });
    const segments = rows.map((segment) => ({ ...segment, analytics_tracking_enabled: false, tags: [] }));
    return { status: 200, body: { segments, message: 'success' } };
  },
});

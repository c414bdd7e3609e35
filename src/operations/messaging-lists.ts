import type { DirectOperation } from './operation.ts';

/**
 * Creates an operation that lists objects of a messaging service. Penstock sends no messages, so the list is always
 * empty. Connectors read it to test their connection.
 */
function emptyList(
  given: Pick<DirectOperation, 'id' | 'path' | 'summary'> & { permission: string; member: string },
): DirectOperation {
  const { member, ...described } = given;
  const body = { message: 'success', [member]: [] };
  return {
    ...described,
    kind: 'direct',
    method: 'GET',
    bucket: 'default',
    description:
      'Always an empty list, because Penstock sends no messages. Some connectors use this operation to test a connection. Query parameters are ignored.',
    replies: {
      200: {
        description: 'An empty list.',
        schema: {
          type: 'object',
          required: [member, 'message'],
          properties: { [member]: { type: 'array', maxItems: 0 }, message: { const: 'success' } },
        },
      },
    },
    example: { query: {}, reply: body },
    handle: async () => ({ status: 200, body }),
  };
}

/** GET /campaigns/list */
export const campaignsList = () =>
  emptyList({
    id: 'campaigns.list',
    path: '/campaigns/list',
    permission: 'campaigns.list',
    summary: 'List campaigns',
    member: 'campaigns',
  });

/** GET /canvas/list */
export const canvasList = () =>
  emptyList({
    id: 'canvas.list',
    path: '/canvas/list',
    permission: 'canvas.list',
    summary: 'List canvases',
    member: 'canvases',
  });

/** GET /feed/list */
export const feedList = () =>
  emptyList({
    id: 'feed.list',
    path: '/feed/list',
    permission: 'feed.list',
    summary: 'List News Feed cards',
    member: 'cards',
  });

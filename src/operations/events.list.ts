import { listing } from './activity/activity.ts';

/** GET /events/list */
export const eventsList = () =>
  listing('events', {
    id: 'events.list',
    path: '/events/list',
    permission: 'events.list',
    summary: 'List the names of custom events',
    description: 'Lists all events that were ever recorded in the workspace, 250 per page.',
    example: 'signed_up',
  });

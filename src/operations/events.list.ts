import { listing } from './activity/activity.ts';

/** GET /events/list */
export const eventsList = () =>
  listing('events', {
    id: 'events.list',
    path: '/events/list',
    permission: 'events.list',
    summary: 'List the names of custom events',
    description: 'Of all events that were ever recorded in the workspace, 250 to a page.',
    example: 'signed_up',
  });

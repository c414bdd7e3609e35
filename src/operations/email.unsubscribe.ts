import { listEmails } from '../store/suppression-lists.ts';
import { listParameters, listReply, readPage } from './email/listing.ts';
import type { DirectOperation } from './operation.ts';

/** GET /email/unsubscribes */
export function emailUnsubscribe(): DirectOperation {
  return {
    kind: 'direct',
    id: 'email.unsubscribe',
    method: 'GET',
    path: '/email/unsubscribes',
    permission: 'email.unsubscribe',
    bucket: 'default',
    summary: 'List unsubscribed email addresses',
    description:
      'Lists the addresses that are unsubscribed now, sorted by the time at which they unsubscribed. Send both days or an email. The days also apply together with an email.',
    query: listParameters,
    replies: {
      200: {
        description: 'The addresses.',
        schema: listReply('unsubscribed_at', 'Time at which the address was unsubscribed.'),
      },
    },
    example: {
      query: { start_date: '2026-01-01', end_date: '2026-02-01', sort_direction: 'asc' },
      reply: {
        emails: [{ email: 'ada@example.com', unsubscribed_at: '2026-01-31 12:00:01 +0000' }],
        message: 'success',
      },
    },

    async handle({ workspaceId }, { query }, { database }) {
      const page = readPage(query, 'always');
      const rows = await listEmails(database.pool, workspaceId, { list: 'unsubscribed', ...page });
      const emails = rows.map(({ email, since }) => ({ email, unsubscribed_at: since }));
      return { status: 200, body: { emails, message: 'success' } };
    },
  };
}

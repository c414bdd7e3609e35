import { listEmails } from '../store/suppression-lists.ts';
import { listParameters, listReply, readPage } from './email/listing.ts';
import type { DirectOperation } from './operation.ts';

/** GET /email/hard_bounces */
export function emailHardBounces(): DirectOperation {
  return {
    kind: 'direct',
    id: 'email.hard_bounces',
    method: 'GET',
    path: '/email/hard_bounces',
    permission: 'email.hard_bounces',
    bucket: 'default',
    summary: 'List email addresses that hard bounced',
    description:
      'Lists the addresses that are marked as hard bounces now, sorted by the time at which they were marked. Send both days or an email. With an email, the days are ignored.',
    query: listParameters,
    replies: {
      200: {
        description: 'The addresses.',
        schema: listReply('hard_bounced_at', 'Time at which the address was marked.'),
      },
    },
    example: {
      query: { start_date: '2026-01-01', end_date: '2026-02-01', sort_direction: 'asc' },
      reply: {
        emails: [{ email: 'ada@example.com', hard_bounced_at: '2026-01-31 12:00:01 +0000' }],
        message: 'success',
      },
    },

    async handle({ workspaceId }, { query }, { database }) {
      const page = readPage(query, 'unless-email');
      const rows = await listEmails(database.pool, workspaceId, { list: 'hard_bounced', ...page });
      const emails = rows.map(({ email, since }) => ({ email, hard_bounced_at: since }));
      return { status: 200, body: { emails, message: 'success' } };
    },
  };
}

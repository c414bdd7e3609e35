import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { encodeTraces } from '../../src/jobs/traces.ts';
import { EXAMPLE_REQUEST } from '../../src/operations/requests.get.ts';
import { EXAMPLE_SEGMENT } from '../../src/operations/segments.details.ts';
import { buckets } from '../../src/schemas/limits.ts';

/** Preference center and user in the documented examples of the endpoints. */
const CENTER = '019c13ec-a2e2-7c24-9a1e-7d30b4f0c2e1';
const USER = {
  id: '019c13ec-a2e2-7b61-8f0c-55a3d4000000',
  externalId: 'lovelace',
  email: 'lovelace@example.com',
};

/** Creates the rows that the documented examples require. */
export async function seedExamples(pool: pg.Pool, workspaceId: string): Promise<void> {
  await pool.query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     values ($1, $2, 'newsletters', 'Your choices', 'page', 'saved', 'active')`,
    [workspaceId, CENTER],
  );
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, email, created_at, updated_at)
     values ($1, $2, $3, $4, now(), now())`,
    [workspaceId, USER.id, USER.externalId, USER.email],
  );
  await pool.query(
    `insert into segments (id, workspace_id, name, definition) values ($1, $2, 'readers', '{"all": []}')`,
    [EXAMPLE_SEGMENT, workspaceId],
  );
  // Envelope of the example's request: its id begins with the same time.
  const envelopeId = EXAMPLE_REQUEST.slice(0, 18) + randomUUID().slice(18);
  const request = { request_id: EXAMPLE_REQUEST, workspace_id: workspaceId, accepted_at: 'then' };
  const object = { kind: 'events', id: randomUUID(), index: 0 } as unknown as AcceptedObject;
  await pool.query('insert into ledger (envelope_id, requests) values ($1, $2)', [
    envelopeId,
    encodeTraces({ requests: [{ ...request, count: 1 }], objects: [object] }),
  ]);
}

/** Raises limits so that tests of other rules do not reach them. */
export async function liftLimits(pool: pg.Pool, workspaceId: string): Promise<void> {
  await pool.query(
    'insert into rate_limits select $1, bucket, 1000000, 60 from unnest($2::text[]) as bucket',
    [workspaceId, Object.keys(buckets)],
  );
}

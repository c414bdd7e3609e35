import { randomBytes } from 'node:crypto';
import { getPriority } from 'node:os';
import { expect, test } from 'vitest';
import { encryptCredentials, keysOf } from '../../src/integrations/source.ts';
import { newId } from '../../src/platform/ids.ts';
import { createDestination } from '../../src/store/stream-destinations.ts';
import { newWebhookSecret } from '../../src/streams/webhook.ts';
import { startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver, event, openPool } from '../workers/batch.ts';
import { startReceiver } from './receiver.ts';

const INTEGRATION_KEY = randomBytes(32).toString('base64');
const USERS = 20;
const EVENTS = 60;

test('after a sync process is killed, another one delivers every message in order per user', async () => {
  const receiver = await startReceiver();
  const fleet = await startFleet('postgres', { edges: 0, workers: 0, syncs: 1, env: { INTEGRATION_KEY } });
  const pool = openPool(fleet.env.DATABASE_URL!);
  const id = newId();
  const secret = encryptCredentials({ webhook_secret: newWebhookSecret() }, id, keysOf(INTEGRATION_KEY));
  const workspaceId = fleet.workspace.id;
  const settings = { url: receiver.url };
  await createDestination(pool, { workspaceId, id, name: 'crm', kind: 'webhook', settings, secret });
  // The receiver accepts some messages, then hangs in the middle of a batch.
  for (let index = 0; index < EVENTS; index++) {
    if (index === EVENTS / 2) {
      await waitUntil(() => receiver.messages().length > 0, { what: 'the first messages' });
      receiver.answer = () => {};
    }
    const objects = Array.from({ length: USERS }, (_, user) => event(`user-${user}`, `event-${index}`));
    await applyBatch(pool, [deliver(fleet.workspace, objects)]);
  }
  const requested = receiver.requests;
  await waitUntil(() => receiver.requests > requested || receiver.messages().length < EVENTS * USERS, {
    what: 'a hang',
  });
  const [sync] = fleet.syncs;
  await fleet.end(sync!);
  receiver.answer = undefined;
  // Messages of a dead process are free once its lease has expired.
  await pool.query('update stream_destinations set leased_until = now()');
  await fleet.startSync();
  const ids = () => new Set(receiver.messages().map((message) => message.id));
  await waitUntil(() => ids().size === EVENTS * USERS, { what: 'every message' });
  const first = [...new Map(receiver.messages().map((message) => [message.id, message])).values()];
  for (let user = 0; user < USERS; user++) {
    const names = first
      .filter((message) => message.user!.external_id === `user-${user}`)
      .map(({ data }) => data.name);
    expect(names).toEqual(Array.from({ length: EVENTS }, (_, index) => `event-${index}`));
  }
  await pool.end();
  await fleet.stop();
});

test('a sync process yields to web and workers: it runs with the nice value of SYNC_NICE', async () => {
  const fleet = await startFleet('postgres', { edges: 0, workers: 0, syncs: 1, env: { SYNC_NICE: '7' } });
  const { pid } = fleet.syncs[0]!;
  // The tests may already run with a higher nice value.
  const nice = Math.max(7, getPriority());
  await waitUntil(() => getPriority(pid) === nice, { what: 'the nice value' });
  await fleet.stop();
});

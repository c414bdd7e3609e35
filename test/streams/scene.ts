import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import type pg from 'pg';
import { Registry } from 'prom-client';
import { afterAll, beforeAll } from 'vitest';
import { type Credentials, encryptCredentials } from '../../src/integrations/source.ts';
import { newId } from '../../src/platform/ids.ts';
import { createReach } from '../../src/platform/reach.ts';
import type { Json } from '../../src/profile/json.ts';
import { watchHorizon } from '../../src/store/horizon.ts';
import { createDestination, listDestinations } from '../../src/store/stream-destinations.ts';
import { type OpeningOptions, openDestination } from '../../src/streams/open-destination.ts';
import { newWebhookSecret } from '../../src/streams/webhook.ts';
import { JobAttempts } from '../../workers/jobs/job-attempts.ts';
import { StreamDeliveries } from '../../workers/streams/deliver.ts';
import { createStreamMetrics } from '../../workers/streams/metrics.ts';
import { openSource } from '../../workers/streams/source.ts';
import { startStreams, startStreamUpkeep } from '../../workers/streams/start.ts';
import { createYielding, type Yielding } from '../../workers/streams/yielding.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { createStore, deliver, silent } from '../workers/batch.ts';

const keys = [randomBytes(32)];
export let pool: pg.Pool;
export let url: string;

/** Creates a database for the tests of one file. */
export function useStore(): void {
  beforeAll(async () => {
    ({ pool, url } = await createStore());
  });
  afterAll(() => pool.end());
}

export const apply = (workspace: { id: string }, ...objects: Parameters<typeof deliver>[1]) =>
  applyBatch(pool, [deliver(workspace, objects)]);

/** Creates a stream of a new workspace, or of the given one, to a receiver. */
export async function stream(url: string, workspace?: { id: string }) {
  const webhook_secret = newWebhookSecret();
  const made = await streamTo({ kind: 'webhook', settings: { url }, secret: { webhook_secret } }, workspace);
  return { ...made, secret: webhook_secret };
}

/** Creates a stream of any kind. */
export async function streamTo(
  {
    kind,
    settings,
    secret,
    ...others
  }: { kind: string; settings: Record<string, Json>; secret?: Credentials; gatherMs?: number; from?: Date },
  workspace?: { id: string },
) {
  const { id: workspaceId } = workspace ?? (await createWorkspace(pool, newId()));
  const id = newId();
  await createDestination(pool, {
    ...{ workspaceId, id, name: id, kind, settings, ...others },
    secret: secret ? encryptCredentials(secret, id, keys) : null,
  });
  const state = async () => {
    const all = await listDestinations(pool, { workspaceId, limit: 10 });
    return all.find((one) => one.id === id)!;
  };
  return { id, workspaceId, workspace: { id: workspaceId }, state };
}

function noBucket(): never {
  throw new Error('no bucket');
}

/** Never yields, as on a machine without other processes. */
const neverYielding = createYielding({
  areWorkersBehind: () => false,
  processorWait: () => 0,
  maxMs: 60_000,
  onWait() {},
});

export const openingOf = (different: Partial<OpeningOptions> = {}): OpeningOptions => ({
  ...{ reach: createReach({ refused: 'none' }), keys, serviceIdField: 'service_id' },
  files: { folders: [tmpdir()], bucketAccess: noBucket },
  ...different,
});

type Deliveries = ConstructorParameters<typeof StreamDeliveries>[0];

/** Delivers streams as a sync process does; several may run at the same time. */
export function deliverStreams(
  given: Partial<Pick<Deliveries, 'open' | 'log' | 'heldWork' | 'times'>> & {
    atOnce?: number;
    opening?: Partial<OpeningOptions>;
    yielding?: Yielding;
  } = {},
): { stop(): Promise<void> } {
  const { atOnce, opening: different, yielding = neverYielding, log = silent, ...others } = given;
  const opening = openingOf(different);
  const metrics = createStreamMetrics(new Registry());
  const horizon = watchHorizon(pool);
  const deliveries = new StreamDeliveries({
    ...{ pool, log, metrics },
    reading: { source: openSource(pool, 'service_id'), horizon: horizon.horizon, yielding },
    open: (stored) => openDestination(stored, opening),
    attempts: new JobAttempts({ pool, processId: newId(), log: silent, registry: new Registry() }),
    ...others,
  });
  const services = [
    startStreams({
      ...{ pool, horizon, deliveries, yielding, log },
      ...(atOnce !== undefined && { atOnce }),
    }),
    startStreamUpkeep({ pool, metrics, log, days: 7 }),
  ];
  return {
    async stop() {
      await Promise.all(services.map((service) => service.stop()));
    },
  };
}

export async function cursorOf({ workspaceId, id }: { workspaceId: string; id: string }) {
  const text = 'select position::text, place from stream_destinations where workspace_id = $1 and id = $2';
  const { rows } = await pool.query<{ position: string; place: number }>(text, [workspaceId, id]);
  return rows[0]!;
}

export const soon = (condition: () => Promise<boolean>) =>
  waitUntil(condition, { what: 'delivery', deadline: 20_000 });

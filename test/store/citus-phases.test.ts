import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { alias, identity, merge, remove } from '../identity/objects.ts';
import { citusUrl } from '../setup/citus.ts';
import { createGroup, createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { email, says } from '../subscription/scene.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { attributes, deliver, event, point, purchase } from '../workers/batch.ts';
import { createDistributedDatabase } from './distributed-database.ts';

/** Transaction commands that the coordinator sends to a node, recorded as `node: command`. */
const PHASES = /(BEGIN TRANSACTION|PREPARE TRANSACTION|COMMIT PREPARED|COMMIT)\b/;

describe.skipIf(!citusUrl)('on the Citus of CITUS_URL', () => {
  let pool: Pool;
  let workspace: TestWorkspace;
  let group: string;
  let logged: string[] = [];

  beforeAll(async () => {
    const url = await createDistributedDatabase();
    pool = openPool(url, 2, { session: { 'citus.log_remote_commands': 'on' } });
    pool.on('connect', (client) =>
      client.on('notice', ({ message }) => {
        const [, phase] = PHASES.exec(message?.split('\n')[0] ?? '') ?? [];
        if (phase) logged.push(phase);
      }),
    );
    workspace = await createWorkspace(pool);
    group = await createGroup(pool, workspace.id, 'email', { name: 'news' });
    const users = ['ann', 'bob', 'eve'].map((user) => point(user));
    await applyBatch(pool, [deliver(workspace, users)]);
  });
  afterAll(() => pool.end());

  /** Returns how the transaction that applies these objects was committed on its node. */
  async function phasesOf(...objects: AcceptedObject[]): Promise<string[]> {
    logged = [];
    expect(await applyBatch(pool, [deliver(workspace, objects)])).toMatchObject({ kind: 'applied' });
    return [...new Set(logged.filter((phase) => phase !== 'BEGIN TRANSACTION'))].sort();
  }

  test.each<[string, () => AcceptedObject[]]>([
    ['events', () => [event('ann'), event('bob')]],
    ['purchases', () => [purchase('ann')]],
    ['attributes', () => [attributes('ann', { set: { points: 2 }, standard: { country: 'DE' } })]],
    ['users who were not there', () => [point('somebody'), event('somebody else')]],
    ['an address', () => [attributes('bob', { standard: { email: 'bob@x.com' } })]],
    ['an alias', () => [identity('alias_new', { ...alias('label:ann'), external_id: 'ann' })]],
    [
      'a push token',
      () => [attributes('ann', { push_tokens: [{ app_id: 'app', token: 'x', device_id: 'phone' }] })],
    ],
    ['all of them', () => [event('ann'), purchase('ann'), point('bob'), event('nobody yet')]],
  ])('a transaction with %s commits in one phase', async (_, objects) => {
    expect(await phasesOf(...objects())).toEqual(['COMMIT']);
  });

  test.each<[string, () => AcceptedObject[]]>([
    ['a state of an address, for its history', () => [email('bob@x.com', { state: 'unsubscribed' })]],
    ['a state of a group, for its history', () => [says({ email: 'bob@x.com' }, group, 'subscribed')]],
    ['a dead letter, for its place', () => [{ ...point('ann'), kind: 'unheard of' } as never]],
    ['a merge', () => [merge('eve', 'ann')]],
    ['a delete', () => [remove('bob')]],
  ])('a transaction with %s commits in two phases', async (_, objects) => {
    expect(await phasesOf(...objects())).toEqual(['COMMIT PREPARED', 'PREPARE TRANSACTION']);
  });
});

test.skipIf(citusUrl)('LEFT OUT: no Citus is tested, because CITUS_URL is not set', () => {});

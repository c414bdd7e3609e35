import { expect, test } from 'vitest';
import { eraseDeletedFromLog, eraseDeletedFromLogs } from '../../src/retention/erase-log.ts';
import { selectTombstones } from '../../src/store/tombstones.ts';
import { cleanUpTombstones } from '../../workers/upkeep/tombstones.ts';
import { identity, merge, remove } from '../identity/objects.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { attributes, deliver, event } from '../workers/batch.ts';
import { startReceiver } from './receiver.ts';
import { apply, deliverStreams, pool, soon, stream, useStore } from './scene.ts';

useStore();

const email = (name: string, address: string, state = 'opted_in') =>
  attributes(name, { standard: { email: address }, email_subscribe: state } as never);

const custom = (name: string, values: object) => attributes(name, { set: values } as never);

/** Returns the content of a workspace's log as text. */
async function logOf(workspaceId: string): Promise<string> {
  const { rows } = await pool.query(
    'select kinds, array_length(ids, 1) as entries, details from stream_log where workspace_id = $1 order by id',
    [workspaceId],
  );
  for (const { kinds, entries } of rows) expect(kinds).toHaveLength(entries);
  return JSON.stringify(rows);
}

const cleanUp = () =>
  soon(async () => {
    const keys = await selectTombstones(pool, 100);
    if (keys.length > 0) await cleanUpTombstones(pool, keys);
    return keys.length === 0;
  });

test('a pass erases a deleted user from the log and keeps the ids that receivers delete by', async () => {
  const { workspace, workspaceId } = await stream('http://127.0.0.1:9');
  await apply(
    workspace,
    email('ada', 'ada@x.com'),
    event('ada'),
    custom('ada', { plan: 'secret-1' }),
    custom('ben', { price: 0.1, plan: 'kept' }),
  );
  await apply(workspace, custom('old', { plan: 'secret-2' }));
  await apply(workspace, merge('old', 'ada'));
  await apply(
    workspace,
    identity('external_id_rename', { current_external_id: 'ada', new_external_id: 'secret-3' }),
  );
  await apply(workspace, remove('secret-3'));
  await cleanUp();
  expect(await logOf(workspaceId)).toMatch(/secret-1.*secret-2/);
  await eraseDeletedFromLog(pool, workspaceId);
  const log = await logOf(workspaceId);
  expect(log).not.toMatch(/secret-[12]|ada@x/);
  expect(log.match(/secret-3/g)).toHaveLength(1);
  expect(log).toContain('"change":"deleted","external_id":"secret-3"');
  expect(log).toContain('"change":"merged_into"');
  expect(log).toContain('"plan":"kept"');
});

test('a late stream delivers the rest of an erased log in order without failures', async () => {
  const receiver = await startReceiver();
  const { workspace, workspaceId, state } = await stream(receiver.url);
  await apply(workspace, email('ada', 'ada@x.com'), email('ben', 'ben@x.com'), event('ben'));
  await apply(workspace, remove('ada'));
  await cleanUp();
  await eraseDeletedFromLog(pool, workspaceId);
  const running = deliverStreams();
  await soon(async () => receiver.messages().some(({ data }) => data.change === 'deleted'));
  // The cursor moves a moment after the message is received.
  await soon(async () => (await state()).lag === 0);
  await running.stop();
  expect(receiver.messages().map(({ type, data }) => [type, data.email ?? data.change ?? null])).toEqual([
    ['attributes', null],
    ['event', null],
    ['subscription', 'ben@x.com'],
    ['identity', 'deleted'],
  ]);
  expect(await state()).toMatchObject({ failures: 0, lost: 0, lag: 0 });
});

test('a pass keeps states of an address that a new user has had since the delete', async () => {
  const { workspace, workspaceId } = await stream('http://127.0.0.1:9');
  await apply(workspace, email('ada', 'shared@x.com'));
  await apply(workspace, remove('ada'));
  await apply(workspace, email('ben', 'shared@x.com', 'subscribed'));
  await cleanUp();
  await eraseDeletedFromLog(pool, workspaceId);
  const log = await logOf(workspaceId);
  expect(log.match(/"to":/g)).toHaveLength(1);
  expect(log).toContain('"to":"subscribed"');
});

test('a pass erases states that the deleting transaction has written itself', async () => {
  const { workspace, workspaceId } = await stream('http://127.0.0.1:9');
  const first = deliver(workspace, [email('ada', 'ada@x.com')]);
  await applyBatch(pool, [first, deliver(workspace, [remove('ada')])]);
  expect(await logOf(workspaceId)).toContain('ada@x.com');
  await cleanUp();
  await eraseDeletedFromLog(pool, workspaceId);
  expect(await logOf(workspaceId)).not.toContain('ada@x.com');
});

test('one pass waits for the first deleted user and then serves all who were deleted until then', async () => {
  const { workspace, workspaceId } = await stream('http://127.0.0.1:9');
  for (const name of ['ada', 'ben']) await apply(workspace, custom(name, { of: name }));
  for (const name of ['ada', 'ben']) await apply(workspace, remove(name));
  await cleanUp();
  await eraseDeletedFromLogs(pool);
  expect(await logOf(workspaceId)).toContain('"of":"ada"');
  await pool.query(
    `update stream_erasures set since = now() - interval '1 hour'
    where (workspace_id, subject) in (
      select workspace_id, subject from stream_erasures where workspace_id = $1 limit 1)`,
    [workspaceId],
  );
  await eraseDeletedFromLogs(pool);
  expect(await logOf(workspaceId)).not.toContain('"of":');
  const { rows } = await pool.query('select from stream_erasures where workspace_id = $1', [workspaceId]);
  expect(rows).toEqual([]);
});

test('a log without a destination and without rows records no erasure', async () => {
  const { workspaceId, workspace, id } = await stream('http://127.0.0.1:9');
  await pool.query('delete from stream_destinations where id = $1', [id]);
  await apply(workspace, email('ada', 'ada@x.com'));
  await apply(workspace, remove('ada'));
  await cleanUp();
  const { rows } = await pool.query('select from stream_erasures where workspace_id = $1', [workspaceId]);
  expect(rows).toEqual([]);
});

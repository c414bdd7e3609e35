import { v4 as uuidv4, v5 as uuidv5, v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { replayDeadLetters } from '../../src/queue/dead-letters.ts';
import { identifierKey, laneOf, QueueUnavailable } from '../../src/queue/lanes.ts';
import { fenceLanes } from '../../src/queue/pack.ts';
import { selectDeadLetters } from '../../src/store/dead-letters.ts';
import {
  commit,
  commitReplayed,
  createInstallation,
  failedEvent,
  type Installation,
  read,
} from '../board/installation.ts';

describe.each(['redis', 'postgres'] as const)('replaying dead letters, queue on %s', (kind) => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await createInstallation(kind);
  });
  afterAll(() => installation.stop());

  /** Envelopes that contain one of these objects. */
  async function envelopesOf(...ids: string[]) {
    const envelopes = await installation.envelopes();
    return envelopes.filter(({ envelope }) =>
      envelope.objects.some((object: { id: string }) => ids.includes(object.id)),
    );
  }

  test('a replay adds the object to the lane of its identifier, with its own request and time', async () => {
    const { database, replayContext } = installation;
    const row = failedEvent();
    await commit(database, row);
    const result = await replayDeadLetters(replayContext, [row.id]);
    expect(result).toEqual({ enqueued: [row.id], alreadyReplayed: [], discarded: [], unknown: [] });
    expect(await envelopesOf(row.id)).toEqual([
      {
        lane: laneOf(row.workspaceId, identifierKey(row.object.identifier!), 4),
        id: uuidv5('1', row.id),
        envelope: {
          requests: [
            {
              request_id: row.requestId,
              workspace_id: row.workspaceId,
              accepted_at: expect.stringMatching(/Z$/),
              count: 1,
            },
          ],
          objects: [row.object],
          replay: true,
        },
      },
    ]);
    const [entry] = await envelopesOf(row.id);
    const acceptedAt = Date.parse(entry!.envelope.requests[0].accepted_at);
    expect(Math.abs(acceptedAt - Date.now())).toBeLessThan(60_000);
    expect(await read(database, row.id)).toMatchObject({ state: 'replaying', replays: 1 });
  });

  test('an attributes object without an identifier goes to the lane of its id', async () => {
    const { database, replayContext } = installation;
    const id = uuidv7();
    const object = { id, index: 0, create: true, kind: 'attributes', push_tokens: [] };
    const row = { ...failedEvent(), id, kind: 'attributes', object };
    await commit(database, row);
    await replayDeadLetters(replayContext, [id]);
    expect(await envelopesOf(id)).toMatchObject([{ lane: laneOf(row.workspaceId, id, 4) }]);
  });

  test('concurrent replays of one dead letter create one envelope', async () => {
    const { database, replayContext } = installation;
    const [id] = (await commit(database, failedEvent())) as [string];
    const results = await Promise.all(
      Array.from({ length: 8 }, () => replayDeadLetters(replayContext, [id])),
    );
    for (const { enqueued } of results) expect(enqueued).toEqual([id]);
    expect(await envelopesOf(id)).toHaveLength(1);
    expect(await read(database, id)).toMatchObject({ state: 'replaying', replays: 1 });
  });

  test('a replay that died before it reached its lane is repeated under the same envelope id', async () => {
    const { database, replayContext, producer } = installation;
    const [id] = (await commit(database, failedEvent())) as [string];
    const unreachable = { add: () => Promise.reject(new QueueUnavailable('gone')) };
    const dying = replayDeadLetters({ ...replayContext, producer: unreachable }, [id]);
    await expect(dying).rejects.toThrow(QueueUnavailable);
    expect(await envelopesOf(id)).toHaveLength(0);
    await replayDeadLetters({ ...replayContext, producer }, [id]);
    expect(await envelopesOf(id)).toMatchObject([{ id: uuidv5('1', id) }]);
    expect(await read(database, id)).toMatchObject({ state: 'replaying', replays: 1 });
  });

  test('a dead letter that has taken effect and an unknown id are reported, not enqueued', async () => {
    const { database, replayContext } = installation;
    const [id] = (await commit(database, failedEvent())) as [string];
    await commitReplayed(database, [id]);
    const nothing = uuidv7();
    const result = await replayDeadLetters(replayContext, [id, nothing, id.toUpperCase()]);
    expect(result).toEqual({ enqueued: [], alreadyReplayed: [id], discarded: [], unknown: [nothing] });
    expect(await envelopesOf(id)).toHaveLength(0);
  });

  test('a replayed dead letter that fails again waits, and its next replay is a new envelope', async () => {
    const { database, replayContext } = installation;
    const row = failedEvent();
    await commit(database, row);
    await replayDeadLetters(replayContext, [row.id]);
    await commit(database, { ...row, reason: 'no such table' });
    expect(await read(database, row.id)).toMatchObject({
      state: 'waiting',
      replays: 1,
      reason: 'no such table',
    });
    await replayDeadLetters(replayContext, [row.id]);
    const ids = (await envelopesOf(row.id)).map(({ id }) => id).sort();
    expect(ids).toEqual([uuidv5('1', row.id), uuidv5('2', row.id)].sort());
  });

  test('G3: a dead letter with users of several lanes is added to all of them under stable ids', async () => {
    const { database, replayContext, laneQueues } = installation;
    const id = uuidv7();
    const { workspaceId } = failedEvent();
    const identifier = { external_id: 'ann' };
    const emails = Array.from({ length: 50 }, (_, number) => `ann-${number}@example.com`);
    const lane = laneOf(workspaceId, identifierKey(identifier), 4);
    const email = emails.find((email) => laneOf(workspaceId, identifierKey({ email }), 4) !== lane)!;
    const object = {
      ...{ id, index: 0, create: true, kind: 'attributes', identifier },
      standard: { email },
    };
    await commit(database, { ...failedEvent(), id, workspaceId, kind: 'attributes', object });
    await replayDeadLetters(replayContext, [id]);
    await replayDeadLetters(replayContext, [id]);
    const lanes = fenceLanes([lane, laneOf(workspaceId, identifierKey({ email }), 4)], workspaceId, 4);
    const fence = { id: uuidv5('1', id), lanes, workspace_id: workspaceId };
    const found = await Promise.all(laneQueues.map((queue) => queue.getJobs()));
    const fences = found.flat().filter(({ data }) => data.fence?.id === fence.id);
    const withoutChecksum = ({ checksum: _, ...data }: Record<string, unknown>) => data;
    const entries = lanes.map((one, index) => [
      ...['fence', `lane-${one}`],
      index === 0
        ? expect.objectContaining({ objects: [object], replay: true, fence })
        : { requests: [], objects: [], fence },
    ]);
    const stored = fences.map(({ name, queueName, data }) => [name, queueName, withoutChecksum(data)]);
    expect(stored).toHaveLength(entries.length);
    expect(stored).toEqual(expect.arrayContaining(entries));
  });

  test.each([
    ['a delete whose user cannot be read', { kind: 'delete' }, [0, 1, 2, 3]],
    ['a merge whose users cannot be read', { kind: 'merge' }, undefined],
  ])('G4: %s is replayed anyway', async (_, object, lanes) => {
    const { database, replayContext } = installation;
    const id = uuidv4();
    await commit(database, { ...failedEvent(), id, kind: object.kind, object });
    expect((await replayDeadLetters(replayContext, [id])).enqueued).toEqual([id]);
    const [entry] = await envelopesOf(id);
    expect(entry!.envelope.fence?.lanes.toSorted()).toEqual(lanes);
  });

  test.each([
    ['null', null],
    ['a string', 'text'],
    ['without a valid identifier', { id: 'none', kind: 'events', identifier: { user_alias: null } }],
  ])('a dead letter whose object is %s goes to the lane of its own id', async (_, object) => {
    const { database, replayContext } = installation;
    const id = uuidv4();
    await commit(database, { ...failedEvent(), id, kind: 'envelope', object });
    const result = await replayDeadLetters(replayContext, [id]);
    expect(result.enqueued).toEqual([id]);
    expect(await envelopesOf(id)).toHaveLength(1);
  });

  test('many dead letters are replayed in chunks, each in its own envelope', async () => {
    const { database, replayContext } = installation;
    const ids = await commit(database, ...Array.from({ length: 230 }, () => failedEvent()));
    const { enqueued } = await replayDeadLetters(replayContext, [...ids].reverse());
    expect(enqueued).toEqual([...ids].sort());
    const envelopes = await envelopesOf(...ids);
    expect(envelopes).toHaveLength(230);
    for (const { envelope } of envelopes) expect(envelope.objects).toHaveLength(1);
  });
});

describe('the table of dead letters', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await createInstallation('postgres');
  });
  afterAll(() => installation.stop());

  test('stores values that jsonb and text refuse', async () => {
    const { database } = installation;
    const row = failedEvent({ reason: 'cannot store \u0000 nor \ud800' });
    const object = {
      ...row.object,
      properties: { 'a\u0000b': 'c\u0000d', half: '\udc00', escaped: '\\u0000' },
    };
    await commit(database, { ...row, object });
    const [first] = await selectDeadLetters(database.pool, [row.id]);
    expect(first!.object).toEqual(object);
    expect(first!.reason).toBe('cannot store \u2400 nor \ufffd');
  });

  test('two failures of one object in one transaction create one dead letter', async () => {
    const row = failedEvent();
    await commit(installation.database, row, { ...row, id: row.id.toUpperCase(), reason: 'the later one' });
    expect(await read(installation.database, row.id)).toMatchObject({ reason: 'the later one' });
  });

  test('an applied replay marks its dead letter as replayed', async () => {
    const { database, replayContext } = installation;
    const [applied, other] = (await commit(database, failedEvent(), failedEvent())) as [string, string];
    await replayDeadLetters(replayContext, [applied]);
    await commitReplayed(database, [applied]);
    expect(await read(database, applied)).toMatchObject({ state: 'replayed', replays: 1 });
    expect(await read(database, other)).toMatchObject({ state: 'waiting', replays: 0 });
  });
});

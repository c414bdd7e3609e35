import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { toServiceId } from '../../src/profile/service-id.ts';
import { recordRefused } from '../../workers/refused.ts';
import { runBatch } from '../../workers/run.ts';
import { deliver, point, silent } from '../workers/batch.ts';
import { alias, by, identity, merge, remove, user } from './objects.ts';
import { createScene, does, has, type Scene, unknownGroup } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

const workspace = () => ({ id: scene.workspaceId });

/** Applies the objects as an envelope that a lane delivers. */
function run(objects: AcceptedObject[]) {
  return runBatch(scene.pool, [deliver(workspace(), objects)], silent);
}

/** Parks an object among the dead letters. */
function refuse(object: AcceptedObject) {
  const work = { workspaceId: scene.workspaceId, requestId: 'request', lane: 0, ordinal: 0, object };
  return recordRefused(scene.pool as never, [{ work, reason: 'it could not be applied' }]);
}

/** A dead letter that is tried again, as the lane of its user delivers it. */
function replayOf(object: AcceptedObject) {
  const delivery = deliver(workspace(), [object]);
  return { ...delivery, envelope: { ...delivery.envelope, replay: true as const } };
}

/** An object that does not fit its contract. */
const broken = (external_id: string): AcceptedObject => ({ ...does(external_id), name: 7 }) as never;

describe('a delete takes dead letters away', () => {
  it('of the user by any of the user’s identifiers', async () => {
    const email = 'any@x.com';
    const phone = '+442071838750';
    await scene.apply([
      has('any before', { standard: { email, phone, phone_valid: true } }),
      identity('external_id_rename', { current_external_id: 'any before', new_external_id: 'any' }),
      identity('alias_new', { ...alias('läbel:näme'), external_id: 'any' }),
    ]);
    const { service_id } = await scene.user('any');
    const names: Identifier[] = [
      ...[user('any before'), user('any'), alias('läbel:näme'), { service_id }, { email }, { phone }],
    ];
    const ids = [];
    for (const name of names) ids.push(await scene.park(name));
    expect(await scene.parked(ids)).toEqual(ids);
    await scene.apply([identity('delete', { user: by({ service_id }) })]);
    expect(await scene.parked(ids)).toEqual([]);
  });

  it('of the user by a name that the user has lost since', async () => {
    await scene.apply([
      ...['lost', 'lost x', 'lost into'].map((name) => has(name, {})),
      has('lost mail', { standard: { email: 'lost@x.com' } }),
      identity('alias_new', { ...alias('lost:before'), external_id: 'lost' }),
      identity('external_id_rename', { current_external_id: 'lost x', new_external_id: 'lost y' }),
    ]);
    const names: Identifier[] = [user('lost x'), alias('lost:before'), user('lost'), { email: 'lost@x.com' }];
    const ids = [];
    for (const name of names) ids.push(await scene.park(name));
    await scene.apply([
      identity('alias_update', {
        alias_label: 'lost',
        old_alias_name: 'before',
        new_alias_name: 'after',
      }),
      identity('external_id_remove', { external_id: 'lost x' }),
      has('lost mail', { standard: { email: 'found@x.com' } }),
      merge('lost y', 'lost'),
      merge('lost', 'lost into'),
      has('lost', {}),
    ]);
    await scene.apply([remove('lost mail')]);
    expect(await scene.parked(ids)).toEqual(ids.slice(0, 3));
    await scene.apply([remove('lost into')]);
    expect(await scene.parked(ids)).toEqual([]);
    expect(await scene.user('lost')).toBeDefined();
  });

  it('of everyone whom the user has taken in, whatever they were accepted for', async () => {
    await scene.apply(['taken a', 'taken b', 'taker'].map((name) => has(name, {})));
    const ids = [await scene.park(user('taken a')), await scene.park(user('taken b'))];
    await scene.apply([merge('taken a', 'taken b')]);
    await scene.apply([merge('taken b', 'taker')]);
    expect(await scene.parked(ids)).toEqual(ids);
    await scene.apply([remove('taker')]);
    expect(await scene.parked(ids)).toEqual([]);
  });

  it('of two users, whoever of those is deleted who have taken them in', async () => {
    await scene.apply(['two a', 'two b', 'two c', 'two d'].map((name) => has(name, {})));
    const both = identity('merge', { merge: by(user('two a')), keep: by(user('two b')) });
    const ids = [both.id];
    await refuse(both);
    await scene.apply([merge('two a', 'two c'), merge('two b', 'two d')]);
    expect(await scene.parked(ids)).toEqual(ids);
    const identifiers = await scene.rows('select identifiers from dead_letters where id = $1', [both.id]);
    for (const name of ['two c', 'two d']) {
      expect(identifiers[0].identifiers).toContain(`s:${await scene.profileId(name)}`);
    }
    await scene.apply([remove('two c')]);
    expect(await scene.parked(ids)).toEqual([]);
  });

  it('and leaves those of others, of other workspaces, and of an address that somebody else has', async () => {
    const email = 'shared@x.com';
    await scene.apply([has('shares 1', { standard: { email } }), has('shares 2', { standard: { email } })]);
    const ids = [
      await scene.park({ email }),
      await scene.park(user('shares 2')),
      await scene.park(user('shares')),
      await scene.park(alias('shares 1:shares 1')),
    ];
    const elsewhere = unknownGroup(user('shares 1'));
    await scene.apply([elsewhere], uuidv7());
    await scene.apply([
      identity('delete', { user: by({ email }, 'least_recently_updated') }),
      remove('shares 1'),
    ]);
    expect(await scene.user('shares 1')).toBeUndefined();
    expect(await scene.parked([...ids, elsewhere.id])).toEqual([...ids, elsewhere.id]);
  });

  it('and leaves those of an address that several have when it means nobody', async () => {
    const email = 'ambiguous@x.com';
    await scene.apply(['amb 1', 'amb 2'].map((name) => has(name, { standard: { email } })));
    const ids = [await scene.park({ email })];
    await scene.apply([identity('delete', { user: by({ email }) })]);
    expect(await scene.parked(ids)).toEqual(ids);
  });

  it('also when nobody has the identifier', async () => {
    const names: Identifier[] = [user('unknown'), alias('l:unknown'), { email: 'unknown@x.com' }];
    names.push({ phone: '+442071838751' }, { service_id: toServiceId(uuidv7()) });
    const ids = [];
    for (const name of names) ids.push(await scene.park(name));
    await scene.apply(names.map((name) => identity('delete', { user: by(name) })));
    expect(await scene.parked(ids)).toEqual([]);
  });

  it('that were accepted before it in the same batch, and none that were accepted after it', async () => {
    const [before, after] = [unknownGroup(user('order')), unknownGroup(user('order'))];
    const [odd, odder] = [broken('order'), broken('order')];
    await run([odd, does('order'), before, remove('order'), after, odder]);
    expect(await scene.parked([odd.id, before.id, after.id, odder.id])).toEqual([after.id, odder.id]);
    expect(await scene.user('order')).toBeUndefined();
  });
});

describe('a replay on its way when a delete takes its dead letter away', () => {
  it('has no effect', async () => {
    const object = unknownGroup(user('replayed'));
    await run([object]);
    await run([remove('replayed')]);
    const repaired = { ...point('replayed'), id: object.id };
    expect(await runBatch(scene.pool, [replayOf(repaired)], silent)).toMatchObject({ objects: 0 });
    expect(await scene.user('replayed')).toBeUndefined();
  });

  it('has no effect behind the delete in the same batch, and one effect before it', async () => {
    const [first, second] = [unknownGroup(user('same')), unknownGroup(user('same'))];
    await run([first, second]);
    const outcome = await runBatch(
      scene.pool,
      [
        replayOf({ ...point('same'), id: first.id }),
        deliver(workspace(), [remove('same')]),
        replayOf({ ...point('same'), id: second.id }),
      ],
      silent,
    );
    expect(outcome).toMatchObject({ objects: 2, deadLetters: [] });
    expect(await scene.user('same')).toBeUndefined();
    expect(await scene.parked([first.id, second.id])).toEqual([]);
  });

  it('does not come back as a dead letter when it cannot be applied', async () => {
    const [refused, odd] = [unknownGroup(user('again')), broken('again')];
    await run([refused, odd]);
    expect(await scene.parked([refused.id, odd.id])).toHaveLength(2);
    await run([remove('again')]);
    await runBatch(scene.pool, [replayOf(refused), replayOf(odd)], silent);
    expect(await scene.parked([refused.id, odd.id])).toEqual([]);
  });

  it('is applied when the dead letter is still there', async () => {
    const object = unknownGroup(user('stays'));
    await run([object]);
    await runBatch(scene.pool, [replayOf({ ...point('stays'), id: object.id })], silent);
    expect((await scene.user('stays')).custom_attributes).toEqual({ points: 1 });
  });
});

import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { type Identifier, toServiceId } from '../../src/profile/identifier.ts';
import { recordRefused } from '../../workers/batch/failures.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver, point } from '../workers/batch.ts';
import { alias, by, identity, merge, remove, user } from './objects.ts';
import { createScene, does, has, type Scene, unknownGroup } from './scene.ts';

let scene: Scene;
/** Whether the follow-up work of each step is done at once, or never. */
let isFinished: boolean;

const workspace = () => ({ id: scene.workspaceId });

async function apply(objects: AcceptedObject[], workspaceId?: string): Promise<void> {
  await scene.apply(objects, workspaceId);
  if (isFinished) await scene.cleanUp();
}

/** Applies envelopes as a lane delivers them. */
async function run(...deliveries: Delivery[]) {
  const result = await applyBatch(scene.pool, deliveries);
  if (isFinished) await scene.cleanUp();
  return result;
}

/** Makes the object a dead letter. */
function refuse(object: AcceptedObject) {
  const item = { workspaceId: scene.workspaceId, requestId: 'request', lane: 0, ordinal: 0, object };
  return recordRefused(scene.pool as never, [{ item, reason: 'it could not be applied' }]);
}

/** Returns the delivery of a replayed dead letter in the lane of its user. */
function replayOf(object: AcceptedObject) {
  const delivery = deliver(workspace(), [object]);
  return { ...delivery, envelope: { ...delivery.envelope, replay: true as const } };
}

/** Returns an object that violates its contract. */
const broken = (external_id: string): AcceptedObject => ({ ...does(external_id), name: 7 }) as never;

describe.each([
  ['when a delete is settled at once', true],
  ['when a delete is never settled', false],
])('%s:', (_, settling) => {
  beforeAll(async () => {
    scene = await createScene();
    isFinished = settling;
  });
  afterAll(async () => {
    await scene.cleanUp();
    expect(await scene.leftOfFailures()).toEqual({ forgotten: 0, unnamed: 0, stray: 0, left: 0 });
    await scene.stop();
  });

  describe('a delete removes dead letters', () => {
    it('of the user by any of the user’s identifiers', async () => {
      const email = 'any@x.com';
      const phone = '+442071838750';
      await apply([
        has('any before', { standard: { email, phone, phone_valid: true } }),
        identity('external_id_rename', { current_external_id: 'any before', new_external_id: 'any' }),
        identity('alias_new', { ...alias('läbel:näme'), external_id: 'any' }),
      ]);
      const { service_id } = await scene.user('any');
      const names: Identifier[] = [
        ...[user('any before'), user('any'), alias('läbel:näme'), { service_id }, { email }, { phone }],
      ];
      const ids = [];
      for (const name of names) ids.push(await scene.deadLetterOf(name));
      expect(await scene.deadLetters(ids)).toEqual(ids);
      await apply([identity('delete', { user: by({ service_id }) })]);
      expect(await scene.deadLetters(ids)).toEqual([]);
    });

    it('of the user by a name that the user no longer has', async () => {
      await apply([
        ...['lost', 'lost x', 'lost into'].map((name) => has(name, {})),
        has('lost mail', { standard: { email: 'lost@x.com' } }),
        identity('alias_new', { ...alias('lost:before'), external_id: 'lost' }),
        identity('external_id_rename', { current_external_id: 'lost x', new_external_id: 'lost y' }),
      ]);
      const names: Identifier[] = [
        user('lost x'),
        alias('lost:before'),
        user('lost'),
        { email: 'lost@x.com' },
      ];
      const ids = [];
      for (const name of names) ids.push(await scene.deadLetterOf(name));
      await apply([
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
      await apply([remove('lost mail')]);
      expect(await scene.deadLetters(ids)).toEqual(ids.slice(0, 3));
      await apply([remove('lost into')]);
      expect(await scene.deadLetters(ids)).toEqual([]);
      expect(await scene.user('lost')).toBeDefined();
    });

    it('of all users that were merged into the user, whatever name they were accepted for', async () => {
      await apply(['taken a', 'taken b', 'taker'].map((name) => has(name, {})));
      const ids = [await scene.deadLetterOf(user('taken a')), await scene.deadLetterOf(user('taken b'))];
      await apply([merge('taken a', 'taken b')]);
      await apply([merge('taken b', 'taker')]);
      expect(await scene.deadLetters(ids)).toEqual(ids);
      await apply([remove('taker')]);
      expect(await scene.deadLetters(ids)).toEqual([]);
    });

    it.each(['c', 'd'])(
      'of a merge of two users when either of their keepers is deleted: two %s',
      async (doomed) => {
        const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => `two ${name} ${doomed}`) as [
          ...[string, string, string, string],
        ];
        await apply([a, b, c, d].map((name) => has(name, {})));
        const both = identity('merge', { merge: by(user(a)), keep: by(user(b)) });
        const ids = [both.id];
        await refuse(both);
        await apply([merge(a, c), merge(b, d)]);
        expect(await scene.deadLetters(ids)).toEqual(ids);
        await apply([remove(doomed === 'c' ? c : d)]);
        expect(await scene.deadLetters(ids)).toEqual([]);
      },
    );

    it('and keeps dead letters of other users, of other workspaces and of shared addresses', async () => {
      const email = 'shared@x.com';
      await apply([has('shares 1', { standard: { email } }), has('shares 2', { standard: { email } })]);
      const ids = [
        await scene.deadLetterOf({ email }),
        await scene.deadLetterOf(user('shares 2')),
        await scene.deadLetterOf(user('shares')),
        await scene.deadLetterOf(alias('shares 1:shares 1')),
      ];
      const elsewhere = unknownGroup(user('shares 1'));
      await apply([elsewhere], uuidv7());
      await apply([
        identity('delete', { user: by({ email }, 'least_recently_updated') }),
        remove('shares 1'),
      ]);
      expect(await scene.user('shares 1')).toBeUndefined();
      expect(await scene.deadLetters([...ids, elsewhere.id])).toEqual([...ids, elsewhere.id]);
    });

    it('and keeps dead letters of an ambiguous address that matches no single user', async () => {
      const email = 'ambiguous@x.com';
      await apply(['amb 1', 'amb 2'].map((name) => has(name, { standard: { email } })));
      const ids = [await scene.deadLetterOf({ email })];
      await apply([identity('delete', { user: by({ email }) })]);
      expect(await scene.deadLetters(ids)).toEqual(ids);
    });

    it('also when no user has the identifier', async () => {
      const names: Identifier[] = [user('unknown'), alias('l:unknown'), { email: 'unknown@x.com' }];
      names.push({ phone: '+442071838751' }, { service_id: toServiceId(uuidv7()) });
      const ids = [];
      for (const name of names) ids.push(await scene.deadLetterOf(name));
      await apply(names.map((name) => identity('delete', { user: by(name) })));
      expect(await scene.deadLetters(ids)).toEqual([]);
    });

    it('that were accepted before it in the same batch, and keeps later ones', async () => {
      const [before, after] = [unknownGroup(user('order')), unknownGroup(user('order'))];
      const [odd, odder] = [broken('order'), broken('order')];
      await run(deliver(workspace(), [odd, does('order'), before, remove('order'), after, odder]));
      expect(await scene.deadLetters([odd.id, before.id, after.id, odder.id])).toEqual([after.id, odder.id]);
      expect(await scene.user('order')).toBeUndefined();
    });
  });

  describe('a replay in progress when a delete removes its dead letter', () => {
    it('has no effect', async () => {
      const object = unknownGroup(user('replayed'));
      await run(deliver(workspace(), [object]));
      await run(deliver(workspace(), [remove('replayed')]));
      const repaired = { ...point('replayed'), id: object.id };
      expect(await run(replayOf(repaired))).toMatchObject({ objects: 0 });
      expect(await scene.user('replayed')).toBeUndefined();
    });

    it('has no effect after the delete in the same batch, and one effect before it', async () => {
      const [first, second] = [unknownGroup(user('same')), unknownGroup(user('same'))];
      await run(deliver(workspace(), [first, second]));
      const result = await run(
        replayOf({ ...point('same'), id: first.id }),
        deliver(workspace(), [remove('same')]),
        replayOf({ ...point('same'), id: second.id }),
      );
      expect(result).toMatchObject({ objects: 2, deadLetters: [] });
      expect(await scene.user('same')).toBeUndefined();
      expect(await scene.deadLetters([first.id, second.id])).toEqual([]);
    });

    it('does not become a dead letter again when it cannot be applied', async () => {
      const [refused, odd] = [unknownGroup(user('again')), broken('again')];
      await run(deliver(workspace(), [refused, odd]));
      expect(await scene.deadLetters([refused.id, odd.id])).toHaveLength(2);
      await run(deliver(workspace(), [remove('again')]));
      await run(replayOf(refused), replayOf(odd));
      expect(await scene.deadLetters([refused.id, odd.id])).toEqual([]);
    });

    it('is applied when the dead letter still exists', async () => {
      const object = unknownGroup(user('stays'));
      await run(deliver(workspace(), [object]));
      await run(replayOf({ ...point('stays'), id: object.id }));
      expect((await scene.user('stays')).custom_attributes).toEqual({ points: 1 });
    });
  });
});

import { describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { MAX_ALIASES } from '../../src/store/merges.ts';
import { readHistory } from '../../src/store/subscription-history.ts';
import { cleanUpHistories } from '../../workers/upkeep/tombstones.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { email as says } from '../subscription/scene.ts';
import { attributes, event, readDeadLetters } from '../workers/batch.ts';
import {
  belongingsOf,
  CHANGES,
  cleanUp,
  DEADLINE,
  FILLING,
  grow,
  growingScene,
  idOf,
  neighbourWaits,
  pool,
  store,
  workspace,
} from './grown-scene.ts';
import { alias, identity, merge, remove } from './objects.ts';

growingScene();

describe('a push token of a user with more tokens than a merge moves at once', () => {
  const tokens = 300;
  const stored = async (token: string) =>
    (await pool.query('select profile_id as owner from push_tokens where token = $1', [token])).rows[0]
      ?.owner;
  const importing = (token: string): AcceptedObject => {
    const given = attributes('nobody', { push_tokens: [{ app_id: 'app', token, device_id: 'device' }] });
    const { identifier: _, ...imported } = given;
    return imported as AcceptedObject;
  };

  test('belongs to the keeper before it is moved: an import creates no other user', async () => {
    const from = await grow('tokens a', { tokens });
    const into = await grow('tokens b', {});
    await store(merge('tokens a', 'tokens b'));
    await store(...Array.from({ length: tokens }, (_, index) => importing(`${from}token${index + 1}`)));
    await cleanUp();
    expect(await belongingsOf(into)).toMatchObject({ tokens });
  });

  test('is free after a delete, and stays with the user that imports it then', async () => {
    const id = await grow('tokens c', { tokens });
    const all = Array.from({ length: tokens }, (_, index) => `${id}token${index + 1}`);
    await store(remove('tokens c'));
    await store(...all.slice(-3).map(importing), ...all.slice(0, 3).map(importing));
    await cleanUp();
    const owners = await Promise.all(all.map(stored));
    const kept = [...owners.slice(0, 3), ...owners.slice(-3)];
    expect(new Set(kept).size).toBe(6);
    expect(kept).not.toContain(undefined);
    expect(owners.filter((owner) => owner !== undefined)).toHaveLength(6);
  });
});

describe('names of a user with very many names', () => {
  const named = async (externalId: string, label: string, count: number): Promise<void> => {
    await store(event(externalId, 'first'));
    await pool.query(
      `insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)
       select $1, $3 || to_char(number, 'FM0000'), $2, profiles.id, now()
       from profiles, generate_series(1, $4::integer) as number
       where workspace_id = $1 and external_id = $2`,
      [workspace.id, externalId, label, count],
    );
  };
  const owners = async (externalId: string): Promise<string[]> => {
    const { rows } = await pool.query(
      `select alias_label as label from user_aliases
       where workspace_id = $1 and alias_name = $2 and profile_id in (select id from profiles)
       order by alias_label`,
      [workspace.id, externalId],
    );
    return rows.map(({ label }) => label);
  };

  test("a merge moves aliases up to the keeper's limit, and frees the others at once", async () => {
    await named('brings', 'b', 490);
    await named('has', 'a', 300);
    await store(merge('brings', 'has'));
    const brought = await owners('brings');
    expect(brought).toHaveLength(MAX_ALIASES - 300);
    expect(brought.at(-1)).toBe('b0200');
    // The last alias that did not fit; more aliases than one step erases come before it.
    const freed = alias('b0490:brings');
    await store(event('heir', 'first'), identity('alias_new', { ...freed, external_id: 'heir' }));
    await store(event(freed, 'by alias'));
    await cleanUp();
    const { rows } = await pool.query('select count from event_summaries where profile_id = $1', [
      await idOf('heir'),
    ]);
    expect(rows).toHaveLength(2);
    expect(await owners('brings')).toHaveLength(MAX_ALIASES - 300 + 1);
  });

  test('a deprecated external id is free for a rename after a delete, before it is erased', async () => {
    await store(event('renamed', 'first'), event('other', 'first'));
    await pool.query(
      `insert into deprecated_external_ids (workspace_id, external_id, profile_id, created_at)
       select $1, 'old' || number, $2, now() from generate_series(1, 300) as number`,
      [workspace.id, await idOf('renamed')],
    );
    await store(remove('renamed'));
    for (const name of ['old1', 'old300']) {
      await store(event(name, 'first'));
      await store(
        identity('external_id_rename', { current_external_id: name, new_external_id: `new ${name}` }),
        event(name, 'second'),
      );
    }
    await cleanUp();
    const { rows } = await pool.query(
      `select external_id from deprecated_external_ids where workspace_id = $1 order by external_id`,
      [workspace.id],
    );
    expect(rows).toEqual([{ external_id: 'old1' }, { external_id: 'old300' }]);
  });
});

describe('G8: the spam mark of an address with very many users', () => {
  const marked = async (email: string, holders: number) => {
    await pool.query(
      `insert into profiles (workspace_id, id, email, marked_email_as_spam_at, created_at, updated_at)
       select $1, gen_random_uuid(), $2, now(), now(), now() from generate_series(1, $3::integer)`,
      [workspace.id, email, holders],
    );
    const clearing = says(email, { marked_as_spam: false });
    expect(await neighbourWaits(clearing)).toBeLessThan(DEADLINE);
    const { rows } = await pool.query(
      `select count(*)::integer as marked from profiles
       where workspace_id = $1 and email = $2 and marked_email_as_spam_at is not null`,
      [workspace.id, email],
    );
    const deadLetter = (await readDeadLetters(pool)).find(({ id }) => id === clearing.id);
    return { marked: rows[0].marked, reason: deadLetter?.reason };
  };

  test('is removed from up to the maximum of users of an address', async () => {
    expect(await marked('marked@example.com', 500)).toEqual({ marked: 0, reason: undefined });
  });

  test(
    'stays if more users have the address, and a dead letter names the reason',
    async () => {
      expect(await marked('crowded@example.com', 50_000)).toEqual({
        marked: 50_000,
        reason: expect.stringContaining('more than 500 profiles have the email address'),
      });
    },
    FILLING,
  );
});

test(
  'G8: deleting the last user of an address with a long history delays no lane and hides it',
  async () => {
    const email = 'long@example.com';
    const pendingNames = async () => {
      const rows = await readHistory(pool, workspace.id, {
        subjects: [{ kind: 'email', subject: email }],
        limit: 10,
      });
      return rows.map(({ from, to }) => ({ from, to }));
    };
    await store(attributes('last', { standard: { email } }), says(email, { state: 'unsubscribed' }));
    await pool.query(
      `insert into subscription_history (
       workspace_id, subject_kind, subject, subscription, to_state, changed_at, request_id)
     select $1, 'email', $2, '', 'unsubscribed', now(), 'request' from generate_series(1, $3::integer)`,
      [workspace.id, email, 2 * CHANGES],
    );
    expect(await neighbourWaits(remove('last'))).toBeLessThan(DEADLINE);
    expect(await pendingNames()).toEqual([]);
    await store(attributes('next', { standard: { email } }), says(email, { state: 'opted_in' }));
    const own = await pendingNames();
    expect(own.at(-1)).toMatchObject({ from: null });
    expect(own[0]).toMatchObject({ to: 'opted_in' });
    await cleanUp();
    await waitUntil(async () => !(await cleanUpHistories(pool)), { what: 'the history to be erased' });
    expect(await pendingNames()).toEqual(own);
    const { rows } = await pool.query(
      `select (select count(*)::integer from dropped_histories) as dropped,
       (select count(*)::integer from subscription_history where subject = $1) as history`,
      [email],
    );
    expect(rows).toEqual([{ dropped: 0, history: own.length }]);
  },
  FILLING,
);

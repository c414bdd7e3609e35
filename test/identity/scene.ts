import { inject } from 'vitest';
import type { AcceptedAttributes, AcceptedObject } from '../../src/jobs/envelope.ts';
import { newId } from '../../src/platform/ids.ts';
import { type Identifier, toProfileId } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { selectTombstones } from '../../src/store/tombstones.ts';
import { formOf } from '../../tools/generate/citus-forms.ts';
import { cleanUpTombstones } from '../../workers/upkeep/tombstones.ts';
import { createStore } from '../operations/in-process.ts';
import { attributes, event } from '../workers/batch.ts';

/** Restricted to one workspace, so that a distributed Postgres accepts it too. */
const keptLettersStatement = formOf(`
  select kept.id
  from kept_dead_letters as kept
  where kept.id = any($1::uuid[]) and kept.workspace_id = $2::uuid`).text;

/** @param isOurs condition on the rows of each table */
const leftOfFailures = (isOurs: string) => `
  with failures as (
    select workspace_id, place, identifiers from dead_letters where ${isOurs}
    union all
    select workspace_id, place, identifiers from sync_row_errors where ${isOurs}
  ), named as (
    select distinct workspace_id, unnest(identifiers) as name, place from failures
  ), names as (
    select * from named_failures where ${isOurs}
  )
  select
    (select count(*) from dead_letters
      where ${isOurs} and id not in (select kept.id from kept_dead_letters as kept where ${isOurs}))::integer
      + (select count(*) from sync_row_errors
          where ${isOurs} and (job_id, number) not in (
            select kept.job_id, kept.number from kept_row_errors as kept where ${isOurs}))::integer as forgotten,
    (select count(*) from (select * from named except select * from names) as one)::integer as unnamed,
    (select count(*) from (select * from names except select * from named) as one)::integer as stray,
    (select count(*) from left_names where ${isOurs})::integer as left`;

/** Creates a store with short functions for tests. Tests distinguish their users by name. */
export async function createScene() {
  const store = await createStore();
  const { pool } = store.database;

  async function rows(text: string, values: unknown[] = []) {
    return (await pool.query(text, values)).rows;
  }

  /** Returns the exported user; undefined if there is none. */
  async function exported(requested: Record<string, Json>) {
    return (await store.exportIds(requested)).body.users[0];
  }

  return {
    ...store,
    pool,
    rows,
    exported,

    /** Returns the exported user with an external id. */
    user: (external_id: string) => exported({ external_ids: [external_id] }),

    /** Returns the exported user with an alias, `label:name`. */
    aliased(text: string) {
      const [alias_label, alias_name] = text.split(':') as [string, string];
      return exported({ user_aliases: [{ alias_label, alias_name }] });
    },

    /** Returns the profile id of the user with an external id. */
    async profileId(external_id: string): Promise<string> {
      return toProfileId((await exported({ external_ids: [external_id] })).service_id);
    },

    /** Makes an event of this user a dead letter. @returns its id */
    async deadLetterOf(identifier: Identifier): Promise<string> {
      const id = newId();
      await store.apply([{ ...unknownGroup(identifier), id }]);
      return id;
    },

    /** Returns the ids that are still dead letters, in any workspace. */
    async deadLetters(ids: string[]): Promise<string[]> {
      const kept = new Set<string>();
      for (const { id } of await rows('select distinct workspace_id as id from dead_letters'))
        for (const deadLetter of await rows(keptLettersStatement, [ids, id])) kept.add(deadLetter.id);
      return ids.filter((id) => kept.has(id));
    },

    /** Settles merges and deletes completely. */
    async cleanUp(): Promise<void> {
      for (;;) {
        const keys = await selectTombstones(pool, 200);
        if (keys.length === 0) return;
        await cleanUpTombstones(pool, keys);
      }
    },

    /**
     * Counts remaining rows that must not exist: unreadable dead letters and failed rows, missing or
     * superfluous entries in the
     * index of names, and names that are not settled.
     */
    async leftOfFailures() {
      // A distributed Postgres needs the one workspace of the scene.
      const [row] = inject('citusTemplate')
        ? await rows(formOf(leftOfFailures('workspace_id = $1::uuid')).text, [store.workspaceId])
        : await rows(leftOfFailures('true'));
      return row;
    },

    /** Returns the error of an object's outcome; null: success; undefined: no outcome. */
    async outcome({ id }: AcceptedObject): Promise<string | null | undefined> {
      return (await rows('select error from outcomes where object_id = $1', [id]))[0]?.error;
    },
  };
}

export type Scene = Awaited<ReturnType<typeof createScene>>;

/** Returns an object that no worker can apply, because its subscription group does not exist. */
export function unknownGroup(identifier: Identifier): AcceptedAttributes {
  return attributes(identifier, {
    subscription_groups: [{ subscription_group_id: newId(), subscription_state: 'subscribed' }],
  });
}

/** Gives a user attributes, and creates it if needed. */
export { attributes as has, event as does };

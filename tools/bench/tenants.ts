import { randomBytes } from 'node:crypto';
import { newId } from '../../src/platform/ids.ts';
import { describeApiKey } from '../../src/store/credentials.ts';
import type { Contender } from './contender.ts';
import { raiseLimit } from './ours.ts';
import type { Size } from './size.ts';
import { uuidAt } from './uuid-at.ts';

/** A contender with many workspaces. */
export interface Tenants extends Contender {
  /** A key of each workspace, starting with the contender's own. All keys have the same length. */
  keys: readonly string[];
}

const addWorkspaces = `
  insert into workspaces (id, name)
  select made.id, 'tenant-' || made.place
  from unnest($1::uuid[]) with ordinality as made (id, place)`;

const addKeys = `
  insert into api_keys (id, workspace_id, name, identifier, key_hash, permissions, ip_allowlist)
  select gen_random_uuid(), made.workspace_id, 'bench', made.identifier, made.hash, first.permissions, '{}'
  from unnest($1::uuid[], $2::text[], $3::bytea[]) as made (workspace_id, identifier, hash)
  cross join (select permissions from api_keys limit 1) as first`;

/**
 * Inserts the users of the traffic for all workspaces; the first workspace gets as many users as all others
 * together.
 */
const addUsers = `
  insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
  select owner.id, ${uuidAt('now()')}, 'load-' || lpad(number::text, 8, '0'), '{"seeded": true}', now(), now()
  from (
    select workspaces.id, case when workspaces.name = 'default' then $1::integer else $2::integer end as users
    from workspaces
  ) as owner
  cross join lateral generate_series(0, owner.users - 1) as number`;

/**
 * Adds workspaces, each with a key and users; the first workspace gets as many users as the others together.
 */
export async function addTenants(contender: Contender, size: Size): Promise<Tenants> {
  const { pool } = contender;
  const ids = Array.from({ length: size.tenants - 1 }, () => newId());
  const made = ids.map(() => describeApiKey(`bench-${randomBytes(16).toString('hex')}`));
  await pool.query(addWorkspaces, [ids]);
  await pool.query(addKeys, [
    ids,
    made.map(({ identifier }) => identifier),
    made.map(({ hash }) => `\\x${hash.toString('hex')}`),
  ]);
  await pool.query(raiseLimit);
  await pool.query(addUsers, [size.tenants * size.usersOfTenant, size.usersOfTenant]);
  await pool.query('vacuum analyze');
  const keys = [contender.key, ...made.map(({ secret }) => secret)];
  if (keys.some(({ length }) => length !== contender.key.length))
    throw new Error('the keys differ in length');
  return { ...contender, keys };
}

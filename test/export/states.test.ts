import { readFileSync } from 'node:fs';
import path from 'node:path';
import type pg from 'pg';
import { v7 } from 'uuid';
import { beforeAll, expect, test } from 'vitest';
import type { PenstockOn } from '../admin/penstock.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { createGroup } from '../setup/workspace.ts';
import { openShop } from './shop.ts';

let pool: pg.Pool;
let on: PenstockOn;
let workspaceId: string;
let email: string;
let sms: string;

beforeAll(async () => {
  ({ pool, on, workspaceId } = await openShop());
  email = await createGroup(pool, workspaceId, 'email');
  sms = await createGroup(pool, workspaceId, 'sms');
  const ada = await user('ada', 'DE', { email: 'ada@example.com', phone: '+442071838750' });
  const grace = await user('grace', 'FR', {});
  await states(['email', 'ada@example.com'], email, 'subscribed');
  await states(['phone', '+442071838750'], sms, 'unsubscribed');
  // A state from before the user had an address, whose state holds now.
  await states(['profile', ada], email, 'unsubscribed');
  await states(['profile', grace], email, 'unsubscribed');
  await states(['email', 'nobody@example.com'], email, 'subscribed');
  await pool.query(
    `insert into email_addresses (workspace_id, email, state, changed_at)
     values ($1, 'ada@example.com', 'opted_in', now()), ($1, 'gone@example.com', 'unsubscribed', now()),
       ($1, 'bounced@example.com', null, now())`,
    [workspaceId],
  );
});

async function user(
  externalId: string,
  country: string,
  { email, phone }: { email?: string; phone?: string },
) {
  const id = v7();
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, country, email, phone, phone_valid, created_at, updated_at)
     values ($1, $2, $3, $4, $5, $6, $6::text is not null, now(), now())`,
    [workspaceId, id, externalId, country, email, phone],
  );
  return id;
}

const states = (subject: [kind: string, name: string], group: string, state: string) =>
  pool.query(
    `insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
     values ($1, $2, $3, $4, $5, now())`,
    [workspaceId, ...subject, group, state],
  );

async function exported(...more: string[]) {
  const file = path.join(temporaryFolder(), 'states.ndjson');
  await on.json(['export', '--workspace', 'shop', '--what', 'states', '--to', file, ...more]);
  return readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

const inGroup = (subscription_group_id: string, subscription_state: string) => ({
  ...{ subscription_group_id, subscription_state },
});

test('current states are exported by the stored subject, also of unused addresses', async () => {
  expect(await exported()).toEqual([
    { email: 'ada@example.com', ...inGroup(email, 'subscribed') },
    { email: 'nobody@example.com', ...inGroup(email, 'subscribed') },
    { phone: '+442071838750', ...inGroup(sms, 'unsubscribed') },
    { external_id: 'grace', ...inGroup(email, 'unsubscribed') },
    { email: 'ada@example.com', email_subscribe: 'opted_in' },
    { email: 'gone@example.com', email_subscribe: 'unsubscribed' },
  ]);
});

test('an export of a segment has the states that apply to its users', async () => {
  const segment = async (country: string) => {
    const { segment_id } = await on.json([
      ...['segments', 'create', '--workspace', 'shop', '--name', country],
      ...['--definition', `{"attribute":"country","equals":"${country}"}`],
    ]);
    return exported('--segment', segment_id);
  };
  expect(await segment('DE')).toEqual([
    { email: 'ada@example.com', ...inGroup(email, 'subscribed') },
    { phone: '+442071838750', ...inGroup(sms, 'unsubscribed') },
    { email: 'ada@example.com', email_subscribe: 'opted_in' },
  ]);
  expect(await segment('FR')).toEqual([{ external_id: 'grace', ...inGroup(email, 'unsubscribed') }]);
});

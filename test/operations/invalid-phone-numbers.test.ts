import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { DirectOperation } from '../../src/operations/operation.ts';
import { smsInvalidPhoneNumbersRemove } from '../../src/operations/sms.invalid_phone_numbers.remove.ts';
import { smsInvalidPhoneNumbers } from '../../src/operations/sms.invalid_phone_numbers.ts';
import { usersDelete } from '../../src/operations/users.delete.ts';
import { newId } from '../../src/platform/ids.ts';
import { type InvalidReason, markInvalidNumbers } from '../../src/store/suppression-lists.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { penstockOn } from '../admin/penstock.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { type Answer, callerOf } from './caller.ts';
import { createStore, type Store } from './in-process.ts';

let store: Store;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store?.stop());

const fresh = async () => (await createWorkspace(store.database.pool, newId())).id;
const mark = (workspaceId: string, phones: string[], reason: InvalidReason = 'provider_error') =>
  inTransaction(store.database.pool, (tx) => markInvalidNumbers(tx, workspaceId, { phones, reason }));

async function runQuery(
  operation: DirectOperation,
  workspace: string,
  given: { query?: object; body?: object },
) {
  const resources = { database: store.database } as Parameters<DirectOperation['handle']>[2];
  const input = { body: {}, query: {}, params: {}, ...given } as Parameters<DirectOperation['handle']>[1];
  return (await operation.handle(callerOf(workspace), input, resources)) as Answer;
}

interface Told {
  phone: string;
  invalid_detected_at: string;
  reason: string;
}
const list = async (workspace: string, query: object): Promise<Told[]> =>
  (await runQuery(smsInvalidPhoneNumbers(), workspace, { query })).body.sms as unknown as Told[];
const phonesOf = async (workspace: string, query: object) =>
  (await list(workspace, query)).map(({ phone }) => phone);

const always = { start_date: '2020-01-01', end_date: '2999-01-01' };
const [first, second, third] = ['+14155552671', '+12183095514', '+442071838750'] as const;

// "You must provide either a start_date and an end_date OR phone_numbers", "If you provide all three […] we prioritize the
// given phone numbers and disregard the date range", "Entries are listed in descending order", `limit` "Defaults to 100,
// maximum is 500", `reason` "provider_error" or "deactivated": the public page of GET /sms/invalid_phone_numbers.
describe('GET /sms/invalid_phone_numbers', () => {
  test("lists the workspace's numbers of a time range, latest first, page by page", async () => {
    const workspace = await fresh();
    await mark(await fresh(), [first]);
    for (const [phone, day] of [
      [first, '2026-01-01'],
      [second, '2026-01-02'],
      [third, '2026-01-03'],
    ] as const) {
      await mark(workspace, [phone]);
      await store.database.pool.query(
        'update invalid_phone_numbers set detected_at = $3 where workspace_id = $1 and phone = $2',
        [workspace, phone, `${day}T00:00:00Z`],
      );
    }
    expect(await phonesOf(workspace, always)).toEqual([third, second, first]);
    expect(await phonesOf(workspace, { start_date: '2026-01-01', end_date: '2026-01-03' })).toEqual([
      second,
      first,
    ]);
    expect(await phonesOf(workspace, { ...always, limit: '1', offset: '1' })).toEqual([second]);
    expect(
      await list(workspace, { phone_numbers: [first], start_date: '2030-01-01', end_date: '2030-01-02' }),
    ).toEqual([{ phone: first, invalid_detected_at: '2026-01-01T00:00:00.000Z', reason: 'provider_error' }]);
  });

  test('filters by numbers with and without their plus, and by reason', async () => {
    const workspace = await fresh();
    await mark(workspace, [second]);
    await mark(workspace, [third], 'deactivated');
    expect(
      await phonesOf(workspace, { phone_numbers: ['12183095514', '2183095514', '442071838750'] }),
    ).toHaveLength(2);
    expect(await phonesOf(workspace, { ...always, reason: 'deactivated' })).toEqual([third]);
  });

  test.each([
    [{}, "'start_date' and 'end_date' are required, or 'phone_numbers'"],
    [{ start_date: '2026-01-01' }, "'end_date' is required, or 'phone_numbers'"],
    [
      { start_date: '2026-01-02', end_date: '2026-01-02' },
      "'start_date' is not valid: it must be before 'end_date'",
    ],
    [
      { phone_numbers: [first, 'home'] },
      "'phone_numbers[1]' is not valid: it must be a phone number in E.164",
    ],
    [
      { phone_numbers: Array(51).fill(first) },
      "'phone_numbers' is not valid: it must have at most 50 elements",
    ],
    [{ ...always, limit: '501' }, "'limit' is not valid"],
  ])('%j is rejected: %s', async (query, message) => {
    await expect(list(store.workspaceId, query)).rejects.toThrow(message);
  });
});

// "An array of up to 50 phone numbers to modify": the public page of POST /sms/invalid_phone_numbers/remove.
describe('POST /sms/invalid_phone_numbers/remove', () => {
  const remove = (workspace: string, phone_numbers: unknown) =>
    runQuery(smsInvalidPhoneNumbersRemove(), workspace, { body: { phone_numbers } });

  test("removes numbers from its own workspace's list, and ignores numbers that are not listed", async () => {
    const [mine, other] = [await fresh(), await fresh()];
    for (const workspace of [mine, other]) await mark(workspace, [first, second]);
    expect(await remove(mine, [first, third])).toEqual({ status: 201, body: { message: 'success' } });
    expect(await phonesOf(mine, always)).toEqual([second]);
    expect(await phonesOf(other, always)).toHaveLength(2);
  });

  test.each([
    [[], 'must not be empty'],
    [['x'], "'phone_numbers[0]' is not valid"],
    [Array(51).fill(first), 'The max number of ids per request was exceeded'],
    [{}, "'phone_numbers' is not valid: it must be an array of strings"],
  ])('%j is rejected: %s', async (given, message) => {
    await expect(remove(store.workspaceId, given)).rejects.toThrow(message);
  });
});

test('a number leaves the list with its last user', async () => {
  const workspace = await fresh();
  const attributes = ['ada', 'bob'].map((external_id) => ({ external_id, phone: first }));
  await store.track({ attributes }, workspace);
  await mark(workspace, [first, second]);
  const remove = (external_id: string) =>
    store.apply(
      usersDelete('service_id').plan(callerOf(workspace), { external_ids: [external_id] }).objects,
      workspace,
    );
  await remove('ada');
  expect(await phonesOf(workspace, always)).toHaveLength(2);
  await remove('bob');
  expect(await phonesOf(workspace, always)).toEqual([second]);
});

test('penstock phone-numbers mark-invalid adds numbers; a repeat updates the reason', async () => {
  const on = penstockOn(store.url);
  const workspace = await fresh();
  const command = ['phone-numbers', 'mark-invalid', first, second, '--workspace', workspace];
  expect(await on.json(command)).toEqual({ workspace, reason: 'provider_error', marked: 2 });
  await on.json([...command, '--reason', 'deactivated']);
  expect((await list(workspace, always)).map(({ reason }) => reason)).toEqual(['deactivated', 'deactivated']);
  const wrong = await on.run(['phone-numbers', 'mark-invalid', '12', '--workspace', workspace]);
  expect(wrong).toMatchObject({ code: 1 });
  expect(wrong.stderr).toContain('E.164');
});

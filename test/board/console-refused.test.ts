import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MASK } from '../../src/profile/masked.ts';
import { createApiKey } from '../../src/store/api-keys.ts';
import { type Console, openConsole, page } from './console-scene.ts';
import { tester } from './installation.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene?.installation.stop());

const textOf = async (path: string, visitor = scene.operator) => (await page(visitor, path)).text;
const TOTALS = '<h2>By API key</h2>';
const rowsOf = (text: string) => text.split(TOTALS)[0]!.split('<tr>').slice(2);
const hoursAgo = (hours: number) => new Date(Date.now() - hours * 3_600_000);

test('refused objects are listed by cause, most frequent first, with key, count and last request', async () => {
  const few = await scene.refusedIn(scene.shop, { keyId: scene.key });
  await scene.refusedIn(scene.shop, { reason: 'too_large', field: 'properties', objects: 1234 });
  const rows = rowsOf(await textOf(`/refused-objects?workspace=${scene.shop}`));
  expect(rows).toHaveLength(2);
  expect(rows[0]).toMatch(/too_large.*properties.*events.*users\.track.*1,234/s);
  expect(rows[1]).toMatch(/required.*name.*till.*>2</s);
  expect(rows[1]).toContain(`href="/requests/${few.requestId}?workspace=${scene.shop}"`);
});

test('hours of one cause are added up within the chosen range', async () => {
  const keyId = uuidv7();
  for (const hours of [0, 30, 200])
    await scene.refusedIn(scene.school, { keyId, hour: hoursAgo(hours), field: 'time' });
  const countIn = async (range: string) =>
    />(\d+)<\/td><td data-label="Last request"/.exec(
      rowsOf(await textOf(`/refused-objects?workspace=${scene.school}&range=${range}`)).find((row) =>
        row.includes('time</code>'),
      )!,
    )![1];
  expect([await countIn(''), await countIn('week'), await countIn('month')]).toEqual(['2', '4', '6']);
});

test('a cause can be filtered by its reason, and an empty range is reported as such', async () => {
  await scene.refusedIn(scene.school, { reason: 'blocked', field: 'external_id' });
  const path = `/refused-objects?workspace=${scene.school}`;
  expect(rowsOf(await textOf(`${path}&reason=blocked`))).toHaveLength(1);
  expect(await textOf(`${path}&reason=in_use`)).toContain('No refused objects found');
  expect((await page(scene.operator, `${path}&range=never`)).status).toBe(400);
});

test('the page of a cause explains the reason and shows the masked sample', async () => {
  const { path, requestId } = await scene.refusedIn(scene.shop);
  const text = await textOf(path);
  expect(text).toContain('A required field is missing.');
  expect(text).toMatch(new RegExp(`external_id</span>.*${MASK}`, 's'));
  expect(text).toContain(`/requests/${requestId}`);
  expect((await page(scene.operator, path.replace('required', 'in_use'))).status).toBe(404);
});

test('the page of a request lists its refused objects, even if none was accepted', async () => {
  const { requestId } = await scene.refusedIn(scene.shop);
  const { status, text } = await page(scene.operator, `/requests/${requestId}?workspace=${scene.shop}`);
  expect(status).toBe(200);
  expect(text).toContain('rejected');
  expect(text).toContain('No object of this request was accepted.');
  const rows = text.split('Refused objects of the request')[1]!.split('<tr>').slice(2);
  expect(rows).toHaveLength(2);
  expect(rows[0]).toMatch(/events.*>3<.*required.*name.*&#39;name&#39; is required</s);
});

test.each([
  ['invalid', 'email', 'The value provided for the &#39;email&#39; field is not a valid email.'],
  ['invalid', 'phone', '&#39;phone&#39; is not valid: it must be a phone number in E.164 format'],
  ['required', 'external_id|email', '&#39;external_id&#39; or &#39;email&#39; is required'],
  ['too_large', 'name', 'A text, an object or a request is larger than its limit.'],
])('the page of a request shows the message for %s %s', async (reason, field, message) => {
  const { requestId } = await scene.refusedIn(scene.shop, { reason, field });
  const text = await textOf(`/requests/${requestId}?workspace=${scene.shop}`);
  expect(rowsOf(text.split('Refused objects of the request')[1]!)[0]).toContain(`>${message}<`);
});

test('refused objects are added up by API key, linked to the key, and filtered by it', async () => {
  const company = await scene.query('select company_id from workspaces where id = $1', scene.school);
  const workspace = uuidv7();
  await scene.query(
    'insert into workspaces (id, name, company_id) values ($1, $2, $3)',
    ...[workspace, 'totals', company[0].company_id],
  );
  const [one, other] = await Promise.all(
    ['one-key', 'other-key'].map(async (name) => {
      const { key } = await createApiKey(scene.installation.database, tester, {
        ...{ workspaceId: workspace, name, permissions: ['users.track'], ipAllowlist: [] },
      });
      return key.id;
    }),
  );
  await scene.refusedIn(workspace, { keyId: one!, objects: 1000 });
  await scene.refusedIn(workspace, { keyId: one!, objects: 200, field: 'time' });
  await scene.refusedIn(workspace, { keyId: other!, objects: 7, reason: 'blocked' });
  const path = `/refused-objects?workspace=${workspace}`;
  const totalsIn = (text: string) => rowsOf(text.split(TOTALS)[1]!);
  const all = await textOf(path);
  const totals = totalsIn(all);
  expect(totals).toHaveLength(2);
  expect(totals[0]).toMatch(new RegExp(`href="/keys/${one}">one-key<.*>1,200<`, 's'));
  expect(totals[1]).toMatch(/other-key.*>7</s);
  expect(rowsOf(all)).toHaveLength(3);
  for (const row of rowsOf(all)) expect(row).toMatch(/href="\/keys\/[0-9a-f-]{36}">o\w+-key</);
  const filter = /href="([^"]+key=[^"]+)">Causes/.exec(totals[1]!)![1]!.replaceAll('&amp;', '&');
  const filtered = await textOf(filter);
  expect(rowsOf(filtered)).toHaveLength(1);
  expect(filtered).toContain(`<option value="${other}" selected>other-key`);
  expect(totalsIn(await textOf(`${path}&reason=required`))).toHaveLength(1);
  expect((await page(scene.operator, `${path}&key=no`)).status).toBe(400);
  const { visitor } = await scene.people.arrive([], {
    appGroups: [{ workspace, permissions: ['dev_console'], teams: [] }],
  });
  const plain = await textOf(path, visitor);
  expect(plain).toContain('one-key');
  expect(plain).not.toContain('href="/keys/');
});

test('a viewer sees refused objects only in workspaces with the delivery right', async () => {
  const [own, other] = [await scene.refusedIn(scene.shop), await scene.refusedIn(scene.school)];
  const { visitor } = await scene.people.arrive([], {
    appGroups: [{ workspace: scene.shop, permissions: ['dev_console'], teams: [] }],
  });
  const text = await textOf('/refused-objects', visitor);
  expect(text).toContain(own.requestId);
  expect(text).not.toContain(other.requestId);
  expect((await page(visitor, own.path)).status).toBe(200);
  expect((await page(visitor, other.path)).status).toBe(404);
});

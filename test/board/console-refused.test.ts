import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MASK } from '../../src/profile/masked.ts';
import { type Console, openConsole, page } from './console-scene.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene?.installation.stop());

const textOf = async (path: string, visitor = scene.operator) => (await page(visitor, path)).text;
const rowsOf = (text: string) => text.split('<tr>').slice(2);
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
  expect(rows[0]).toMatch(/events.*>3<.*required.*name.*A required field is missing\./s);
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

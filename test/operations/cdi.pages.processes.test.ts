import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ApiAnswer } from '../setup/api.ts';
import { createScene, jobsOf, linksOf, type Scene } from './cdi-scene.ts';

const placesOf = ({ body }: ApiAnswer): number[] =>
  body.results.map((row: { rows_synced: number }) => row.rows_synced);
const down = (from: number, to: number) => Array.from({ length: from - to + 1 }, (_, index) => from - index);

describe('pages of integrations and their jobs', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene('postgres');
  });
  afterAll(() => scene.stop());

  test('integrations come ten at a time, the newest first, with links there and back', async () => {
    const workspace = await scene.shop();
    const ids: string[] = [];
    for (let count = 1; count <= 23; count++) ids.unshift(await scene.create(workspace));
    await scene.create(await scene.shop());
    const idsOf = ({ body }: ApiAnswer) =>
      body.results.map((row: { integration_id: string }) => row.integration_id);
    const first = await scene.ask(workspace, '/cdi/integrations');
    const second = await scene.ask(workspace, linksOf(first).next!);
    const third = await scene.ask(workspace, linksOf(second).next!);
    expect([first, second, third].map(idsOf)).toEqual([ids.slice(0, 10), ids.slice(10, 20), ids.slice(20)]);
    expect([first, second, third].map((page) => Object.keys(linksOf(page)))).toEqual([
      ['next'],
      ['prev', 'next'],
      ['prev'],
    ]);
    expect(idsOf(await scene.ask(workspace, linksOf(third).prev!))).toEqual(ids.slice(10, 20));
    const back = await scene.ask(workspace, linksOf(second).prev!);
    expect(idsOf(back)).toEqual(ids.slice(0, 10));
    expect(idsOf(await scene.ask(workspace, linksOf(back).next!))).toEqual(ids.slice(10, 20));
  });

  test.each([
    [10, {}],
    [11, { next: expect.any(String) }],
  ])('of %i there are the links %j', async (count, expected) => {
    const workspace = await scene.shop();
    const integration = await scene.create(workspace);
    await scene.addRuns(integration, 1, count);
    expect(linksOf(await scene.ask(workspace, jobsOf(integration)))).toEqual(expected);
  });

  test('jobs that are added while someone pages are neither missed nor shown twice', async () => {
    const workspace = await scene.shop();
    const integration = await scene.create(workspace);
    await scene.addRuns(integration, 1, 25);
    const first = await scene.ask(workspace, jobsOf(integration));
    expect(placesOf(first)).toEqual(down(25, 16));
    await scene.addRuns(integration, 26, 38);
    const second = await scene.ask(workspace, linksOf(first).next!);
    expect(placesOf(second)).toEqual(down(15, 6));
    const third = await scene.ask(workspace, linksOf(second).next!);
    expect([placesOf(third), linksOf(third).next]).toEqual([down(5, 1), undefined]);
    // Back to the front, the new ones come where they belong, and the front has nothing before it.
    const back = [await scene.ask(workspace, linksOf(second).prev!)];
    while (linksOf(back[0]!).prev) back.unshift(await scene.ask(workspace, linksOf(back[0]!).prev!));
    expect(back.flatMap(placesOf)).toEqual(down(38, 16));
    expect(placesOf(await scene.ask(workspace, linksOf(back[0]!).next!))).toEqual(placesOf(back[1]!));
  });

  test('a cursor that is none, was changed, or is that of another list is 400 Invalid cursor', async () => {
    const workspace = await scene.shop();
    const [integration, other] = [await scene.create(workspace), await scene.create(workspace)];
    for (const id of [integration, other]) await scene.addRuns(id, 1, 11);
    for (let count = 0; count < 10; count++) await scene.create(workspace);
    const cursorOf = async (path: string, whose = workspace) =>
      new URL(linksOf(await scene.ask(whose, path)).next!, 'http://x').searchParams.get('cursor')!;
    const good = await cursorOf(jobsOf(integration));
    const text = Buffer.from(good, 'base64').toString();
    const changed = Buffer.from(text.replace(/[0-9a-f](?=:[^:]*$)/, (digit) => (digit === '0' ? '1' : '0')));
    const neighbour = await scene.shop();
    for (let count = 0; count < 11; count++) await scene.create(neighbour);
    const lists: [string, string[]][] = [
      [jobsOf(integration), [await cursorOf(jobsOf(other)), await cursorOf('/cdi/integrations')]],
      ['/cdi/integrations', [good, await cursorOf('/cdi/integrations', neighbour)]],
    ];
    for (const [path, others] of lists) {
      const bad = [...others, '', 'x', 'c2tpcDow', `${good}A`, good.slice(0, -4), changed.toString('base64')];
      for (const cursor of bad) {
        const { status, body } = await scene.ask(workspace, `${path}?cursor=${encodeURIComponent(cursor)}`);
        expect({ cursor, status, body }).toEqual({
          cursor,
          status: 400,
          body: { message: 'Invalid cursor' },
        });
      }
      const twice = await scene.ask(workspace, `${path}?cursor=${good}&cursor=${good}`);
      expect(twice).toMatchObject({ status: 400, body: { message: 'Invalid cursor' } });
    }
    expect(
      (await scene.ask(workspace, `${jobsOf(integration)}?cursor=${encodeURIComponent(good)}`)).status,
    ).toBe(200);
  });
});

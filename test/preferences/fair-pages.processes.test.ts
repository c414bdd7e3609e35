import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { signLink } from '../../src/preferences/link.ts';
import { createRenderer } from '../../src/preferences/renderer.ts';
import { sampleView } from '../../src/preferences/submission.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createScene, pageWith, type Scene, tokenOf, withToken } from './scene.ts';

let scene: Scene;
let url: string;
beforeAll(async () => {
  scene = await createScene('redis');
  await scene.addUser('ada', 'ada@example.com');
  url = await scene.urlOf(await scene.addCenter(pageWith(scene.groups.news)), 'ada');
  await waitUntil(async () => (await fetch(url)).status === 200, { what: 'the first page' });
});
afterAll(() => scene?.stop());

/** Signs a link to an unknown user with a key that is not the workspace's. */
const forged = (workspaceId: string) =>
  signLink(
    {
      workspaceId,
      centerId: newId(),
      profileId: newId(),
      madeAt: Date.now(),
      expiresAt: Date.now() + 1_000_000_000,
    },
    Buffer.alloc(32, 1),
  );

/**
 * Milliseconds before a request is repeated after a full queue: places stay taken, but rejections cost no
 * whole core.
 */
const PAUSE = 25;

/**
 * Sends requests in so many parallel sequences until it is stopped, and pauses after each 503.
 * @returns the function that stops it, and the number of answers by status
 */
function sendBurst(lanes: number, send: () => Promise<Response>, pause = 0) {
  let over = false;
  const statuses: Record<number, number> = {};
  const done = Promise.all(
    Array.from({ length: lanes }, async () => {
      while (!over) {
        const { status } = await send();
        statuses[status] = (statuses[status] ?? 0) + 1;
        if (status === 503 && pause > 0) await sleep(pause);
      }
    }),
  );
  return {
    statuses,
    async stop() {
      over = true;
      await done;
    },
  };
}

/** Pages that are requested during a burst, one after the other. */
const PAGES = 10;

/**
 * Returns how many of these pages are shown; the others are busy. In a simple queue, a burst would leave none
 * or one of
 * them. A machine that stops for seconds may cost a few.
 */
async function shown(): Promise<number> {
  const statuses: number[] = [];
  for (let index = 0; index < PAGES; index++) statuses.push((await fetch(url)).status);
  for (const status of statuses) expect([200, 503]).toContain(status);
  return statuses.filter((status) => status === 200).length;
}

/** Takes seconds within one output; Liquid checks its time limit only before outputs. */
const slowFor = (sorts: number) => `{{ (1..200000)${' | sort_natural | sort'.repeat(sorts)} | size }}`;

test('a link with an invalid signature is rejected before its form is read', async () => {
  const token = `${tokenOf(url).slice(0, -1)}${url.endsWith('A') ? 'B' : 'A'}`;
  for (const made of [token, forged(newId()), 'x']) {
    const socket = connect(scene.port, '127.0.0.1');
    const form = 'Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000';
    socket.write(`POST /preferences/${made} HTTP/1.1\r\nHost: a\r\n${form}\r\n\r\na=`);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1.1 404 /);
    socket.destroy();
  }
});

test.each([
  ['of workspaces that there are not', () => newId()],
  ['to the workspace itself', () => scene.workspace.id],
])('a burst of links with invalid signatures %s does not block signed ones', async (_, workspace) => {
  const flooding = sendBurst(48, () => fetch(withToken(url, forged(workspace()))));
  try {
    expect(await shown()).toBeGreaterThanOrEqual(PAGES / 2);
  } finally {
    await flooding.stop();
  }
  expect(flooding.statuses[404]).toBeGreaterThan(0);
});

/** More pages of one workspace than may be rendered (12) or wait (256). */
const MORE_THAN_WAIT = 300;

test("an invalid signature is rejected at once while the workspace's slow pages fill its queue", async () => {
  const { id, key } = await scene.otherWorkspace();
  await scene.addUser('slow', 'slow@example.com', { workspaceId: id });
  const slow = await scene.urlOf(await scene.addCenter(slowFor(40), 'saved', id), 'slow', key);
  const flooding = sendBurst(MORE_THAN_WAIT, () => fetch(slow), PAUSE);
  try {
    // One of the requests was rejected because the queue was full.
    await waitUntil(() => flooding.statuses[503] !== undefined, {
      what: 'the queue of its pages to be full',
      fleeting: true,
    });
    const made = withToken(slow, forged(id));
    const ended = () => flooding.statuses[500] ?? 0;
    const before = ended();
    for (let calls = 0; calls < PAGES; calls++) expect((await fetch(made)).status).toBe(404);
    // In that queue each request would wait until a page has ended, or be busy.
    expect(ended() - before).toBeLessThan(PAGES);
  } finally {
    await flooding.stop();
  }
  expect(flooding.statuses[200]).toBeUndefined();
});

/**
 * Slow pages that may end before as many pages of another workspace are shown as are requested. In a simple
 * queue, each page
 * would wait for sixty slow ones; a page has to wait for the two that are being rendered when it comes.
 */
const SLOW_PAGES = 30;

test('slow templates of several workspaces do not block the pages of another', async () => {
  // Only ending its process stops this template.
  const slow = slowFor(40);
  const slowUrls: string[] = [];
  for (let index = 0; index < 3; index++) {
    const { id, key } = await scene.otherWorkspace();
    await scene.addUser(`otto-${index}`, 'otto@example.com', { workspaceId: id });
    slowUrls.push(await scene.urlOf(await scene.addCenter(slow, slow, id), `otto-${index}`, key));
  }
  let turn = 0;
  const flooding = sendBurst(60, () => fetch(slowUrls[turn++ % slowUrls.length]!), PAUSE);
  const ended = () => flooding.statuses[500] ?? 0;
  let shown = 0;
  try {
    await waitUntil(() => ended() > 0, {
      what: 'the flood to be in hand',
      fleeting: true,
      explain: async () => JSON.stringify(flooding.statuses),
    });
    const first = ended();
    // Measured by the slow pages that ended meanwhile, not by time: on a busy machine a page may be busy now
    // and then.
    while (shown < PAGES / 2 && ended() - first < SLOW_PAGES) {
      const { status } = await fetch(url);
      expect([200, 503]).toContain(status);
      if (status === 200) shown++;
    }
  } finally {
    await flooding.stop();
  }
  expect(shown).toBe(PAGES / 2);
  expect(flooding.statuses[200]).toBeUndefined();
  // Each slow page takes half a second of a core, and other tests may need the cores as well.
}, 300_000);

test('workspaces take turns at rendering, however many pages one of them requests', async () => {
  const renderer = createRenderer({ maxProcesses: 1, deadline: 60_000, patience: 120_000 });
  const ended: string[] = [];
  const render = async (workspace: string) => {
    await renderer.render(workspace, { template: 'x', view: sampleView });
    ended.push(workspace);
  };
  await Promise.all(['flood', 'flood', 'flood', 'flood', 'flood', 'quiet'].map(render));
  expect(ended).toEqual(['flood', 'quiet', 'flood', 'flood', 'flood', 'flood']);
  await renderer.stop();
});

test('a workspace whose template was slow leaves one process to the others', async () => {
  const renderer = createRenderer({ maxProcesses: 2, deadline: 60_000, patience: 120_000 });
  const ended: string[] = [];
  const render = async (workspace: string, template: string) => {
    await renderer.render(workspace, { template, view: sampleView });
    ended.push(workspace);
  };
  await Promise.all([render('slow', slowFor(5)), render('quick', 'x')]);
  ended.length = 0;
  await Promise.all([render('slow', slowFor(5)), render('slow', slowFor(5)), render('quick', 'x')]);
  expect(ended).toEqual(['quick', 'slow', 'slow']);
  await renderer.stop();
});

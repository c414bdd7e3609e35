import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import path from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { signDownload } from '../../src/operations/users.export.segment.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';

/** Bytes of an export, more than the kernel buffers for a receiver that does not read. */
const BYTES = 33_554_432;

let fleet: Fleet;
const folder = temporaryFolder();
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 0, env: { DATA_DIR: folder } });
  mkdirSync(path.join(folder, 'segment-exports'));
});
afterAll(() => fleet?.stop());

/** Creates a workspace with an export that is ready. @returns the path of its link */
async function readyExport(name: string): Promise<string> {
  const { id: workspaceId } = await createWorkspace(fleet.pool, name);
  const exportId = uuidv7();
  const secret = Buffer.alloc(32, name);
  await fleet.pool.query('insert into preference_link_keys (workspace_id, secret) values ($1, $2)', [
    workspaceId,
    secret,
  ]);
  await fleet.pool.query(
    `insert into segment_exports (
       workspace_id, id, segment_id, object_prefix, fields, output_format, state, due_at, expires_at)
     values ($1, $2, $2, $3, '{}', 'zip', 'ready', null, now() + interval '1 hour')`,
    [workspaceId, exportId, name],
  );
  writeFileSync(path.join(folder, 'segment-exports', `${name}.zip`), Buffer.alloc(BYTES, 1));
  return `/exports/${signDownload({ workspaceId, exportId }, secret)}`;
}

async function status(link: string): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${fleet.edges[0]!.port}${link}`);
  await answer.body?.cancel();
  return answer.status;
}

/** Opens a link and reads only the head of the response. */
async function hold(link: string): Promise<Socket> {
  const socket = connect(fleet.edges[0]!.port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(`GET ${link} HTTP/1.1\r\nHost: a\r\n\r\n`);
  await once(socket, 'data');
  socket.pause();
  return socket;
}

test('downloads that are not read occupy their slots for seconds at most', async () => {
  const links = [await readyExport('first'), await readyExport('second')];
  const other = await readyExport('other');
  const held = await Promise.all(
    [...links, ...links, ...links, ...links].flatMap((link) => [hold(link), hold(link)]),
  );
  const from = performance.now();
  try {
    await waitUntil(async () => (await status(other)) === 200, {
      what: 'a download of another workspace',
      deadline: 25_000,
    });
    expect(performance.now() - from).toBeLessThan(25_000);
    // All unread downloads are closed after 10 s, and then the workspace can download again.
    await waitUntil(async () => (await status(links[0]!)) === 200, { what: 'the slots', deadline: 40_000 });
  } finally {
    for (const socket of held) socket.destroy();
  }
});

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { leasePort } from './setup/ports.ts';
import { startProcess } from './setup/processes.ts';

/** Runs the command. @returns its exit code and its output */
async function check(name: string, env: Record<string, string>) {
  const { exit, log } = startProcess('dist/src/health.js', env, [name]);
  const { code } = await exit;
  return { code, text: log.map(({ text }) => text).join('\n') };
}

describe('the health command of the containers', () => {
  test.each([
    ['web', 'PORT'],
    ['worker', 'WORKER_PORT'],
    ['sync', 'SYNC_PORT'],
    ['board', 'BOARD_PORT'],
  ])('exits 0 without output when %s is alive', async (name, setting) => {
    const server = createServer((request, response) => {
      response.writeHead(request.url === '/healthz' ? 200 : 404).end();
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    expect(await check(name, { [setting]: String(port) })).toEqual({ code: 0, text: '' });
    server.close();
  });

  test('reports that a worker without a port cannot be asked', async () => {
    expect(await check('worker', { WORKER_PORT: '0' })).toEqual({
      code: 1,
      text: 'health of worker: WORKER_PORT is 0: there is no port to ask',
    });
  });

  test('reports the address of a process that does not answer', async () => {
    const port = String(await leasePort());
    const { code, text } = await check('web', { PORT: port });
    expect(code).toBe(1);
    expect(text).toContain(`health of web: http://127.0.0.1:${port}/healthz does not answer: `);
  });

  test('lists the names of the processes', async () => {
    expect(await check('workers', {})).toEqual({
      code: 1,
      text: 'health of workers: no such process; there are web, worker, sync, board',
    });
  });
});

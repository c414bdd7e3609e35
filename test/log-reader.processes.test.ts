import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../src/embedded/address.ts';
import { createDatabase, waitUntil } from './setup/fixtures.ts';

test('G5: a process that is told to end does so when whoever read its log has gone, as after the end of npm start', async () => {
  const [{ url }, port] = [await createDatabase(), await freePort()];
  const web = spawn(process.execPath, ['dist/src/web.js'], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { PATH: process.env.PATH, DATABASE_URL: url, PORT: String(port) },
  });
  onTestFinished(() => void web.kill('SIGKILL'));
  const api = `http://127.0.0.1:${port}`;
  await waitUntil(async () => (await fetch(`${api}/readyz`)).ok, { what: 'a ready web process' });
  // Its line is gathered, and not written yet when the reader goes and the process is told to end at once.
  await fetch(`${api}/users/track`, { method: 'POST' });
  web.stdout!.destroy();
  web.kill('SIGTERM');
  web.kill('SIGINT');
  const [code] = await Promise.race([once(web, 'exit'), once(AbortSignal.timeout(15_000), 'abort')]);
  expect(code).toBe(1);
});

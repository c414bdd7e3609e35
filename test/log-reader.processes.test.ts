import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { linkSignals } from '../src/platform/time-limit.ts';
import { createDatabase, waitUntil } from './setup/fixtures.ts';
import { findScript } from './setup/installed.ts';
import { leasePort } from './setup/ports.ts';

test('G5: a process ends on request even if the reader of its log has gone', async () => {
  const [{ url }, port] = [await createDatabase(), await leasePort()];
  const web = spawn(process.execPath, ['dist/src/web.js'], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { PATH: process.env.PATH, DATABASE_URL: url, PORT: String(port) },
  });
  onTestFinished(() => void web.kill('SIGKILL'));
  const api = `http://127.0.0.1:${port}`;
  await waitUntil(async () => (await fetch(`${api}/readyz`)).ok, { what: 'a ready web process' });
  // The request's log line is still buffered when the reader closes and the process receives the signal.
  await fetch(`${api}/users/track`, { method: 'POST' });
  web.stdout!.destroy();
  web.kill('SIGTERM');
  web.kill('SIGINT');
  const [code] = await Promise.race([
    once(web, 'exit'),
    once(linkSignals({ milliseconds: 15_000 }).signal, 'abort'),
  ]);
  expect(code).toBe(1);
});

test('a terminal gets readable lines, coloured if it supports colours; a pipe gets JSON', async () => {
  const script = await findScript();
  const logs = `import { createLog } from './dist/src/platform/log.js'; createLog('test', 'info').warn({ lane: 3 }, 'waits')`;
  const line = (TERM: string, NO_COLOR?: string) => {
    const command = `"${process.execPath}" --input-type=module -e "${logs}"`;
    const env = { PATH: process.env.PATH, TERM, ...(NO_COLOR && { NO_COLOR }) };
    return spawnSync(script, ['-qec', command, '/dev/null'], { encoding: 'utf8', env }).stdout;
  };
  const esc = '\u001b';
  expect(line('xterm-256color')).toMatch(
    new RegExp(
      `^\\d\\d:\\d\\d:\\d\\d  test     ${esc}\\[33mWARN waits${esc}\\[0m  ${esc}\\[90mlane=3${esc}\\[0m\r\n$`,
    ),
  );
  expect(line('xterm-256color', '1')).toMatch(/^\d\d:\d\d:\d\d {2}test {5}WARN waits {2}lane=3\r\n$/);
  const piped = spawnSync(process.execPath, ['--input-type=module', '-e', logs], { encoding: 'utf8' });
  expect(JSON.parse(piped.stdout)).toMatchObject({ level: 40, process: 'test', msg: 'waits', lane: 3 });
});

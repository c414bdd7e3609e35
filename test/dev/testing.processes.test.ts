import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { connectPenstock, type Penstock, startPenstock } from '../../src/testing.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { leaveBehind } from '../setup/left-behind.ts';
import { startCommand } from '../setup/processes.ts';

const scratch = temporaryFolder('penstock-testing-');
const env = { XDG_CACHE_HOME: temporaryFolder('penstock-testing-cache-'), TMPDIR: scratch };

let penstock: Penstock;
beforeAll(async () => {
  penstock = await startPenstock({ env });
  leaveBehind(() => penstock.stop());
}, 90_000);
afterAll(async () => {
  await penstock.stop();
  expect(readdirSync(scratch)).toEqual([]);
});

const ada = (externalId: string) => ({ attributes: [{ external_id: externalId, first_name: 'Ada' }] });
const track = (externalId: string) => penstock.post('/users/track', ada(externalId));

async function users(...externalIds: string[]): Promise<string[]> {
  const result = await penstock.post('/users/export/ids', { external_ids: externalIds });
  return result.users.map(({ external_id }: { external_id: string }) => external_id);
}

const isRunning = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe('startPenstock', () => {
  beforeEach(() => penstock.reset());

  test('returns the address and the credentials of a penstock dev that accepts requests', async () => {
    expect(penstock).toMatchObject({ apiKey: 'penstock-dev-api-key', scimOrigin: 'penstock-dev' });
    expect(Object.values(penstock.connection)).not.toContain(undefined);
    await track('ada');
    expect(await users('ada')).toEqual(['ada']);
    expect((await fetch(`${penstock.consoleUrl}/sign-in`)).status).toBe(200);
  });

  test('reset, snapshot and restore replace the data', async () => {
    await track('ada');
    await penstock.snapshot('with_ada');
    await penstock.reset();
    expect(await users('ada')).toEqual([]);
    await penstock.restore('with_ada');
    expect(await users('ada')).toEqual(['ada']);
  });

  test('requests returns the matching requests until clearRequests', async () => {
    await track('ada');
    await track('bob');
    const wanted = { path: '/users/track', body: { attributes: [{ external_id: 'bob' }] } };
    const [first, ...more] = await penstock.requests(wanted);
    expect(more).toEqual([]);
    expect(first).toMatchObject({ method: 'POST', status: 201 });
    expect(first!.body.attributes).toEqual([{ external_id: 'bob', first_name: 'Ada' }]);
    expect(await penstock.requests()).toHaveLength(2);
    await penstock.clearRequests();
    expect(await penstock.requests()).toEqual([]);
  });

  test('fault fails the next requests until clearFaults', async () => {
    await penstock.fault({ kind: 'rate_limit', path: '/users/track', times: 2 });
    await expect(track('ada')).rejects.toThrow('POST /users/track failed with 429');
    await penstock.clearFaults();
    await track('ada');
    expect(await users('ada')).toEqual(['ada']);
  });

  test('settle returns rejected objects with their reasons', async () => {
    const refused = { attributes: [{ first_name: 'Ada' }] };
    await expect(penstock.post('/users/track', refused)).rejects.toThrow('failed with 400');
    const { settled, rejected } = await penstock.settle();
    expect(settled).toBe(true);
    expect(rejected).toMatchObject([{ input_array: 'attributes', index: 0, object: { first_name: 'Ada' } }]);
  });

  test('a rejected control request fails with the reason', async () => {
    await expect(penstock.restore('none')).rejects.toThrow(
      /^POST \/_dev\/restore failed with 404: .*There is no snapshot 'none'/,
    );
  });

  test('connectPenstock controls it from the connection as JSON', async () => {
    await track('ada');
    const other = connectPenstock(JSON.parse(JSON.stringify(penstock.connection)));
    expect(other.url).toBe(penstock.url);
    await other.reset();
    expect(await users('ada')).toEqual([]);
  });
});

describe('startPenstock with other settings', () => {
  test('passes env to penstock dev, and no setting of the tests', async () => {
    vi.stubEnv('DATABASE_URL', 'postgresql://127.0.0.1/of-the-program-under-test');
    vi.stubEnv('LOG_LEVEL', 'verbose');
    const other = await startPenstock({ env: { ...env, BOARD_USER: 'tester' } }).finally(() =>
      vi.unstubAllEnvs(),
    );
    expect(other.consoleUser).toBe('tester');
    await other.stop();
    await other.stop();
    expect(isRunning(other.pid)).toBe(false);
    await expect(other.reset()).rejects.toThrow(/does not answer POST \/_dev\/reset: it exited with code 0/);
  });

  test('fails with the output of a penstock dev that does not start', async () => {
    await expect(startPenstock({ env: { ...env, REDIS_URL: 'redis://127.0.0.1' } })).rejects.toThrow(
      /^penstock dev did not start: it exited with code 1\. Its output:\n.*refuses the setting REDIS_URL/,
    );
  });

  test('fails after the timeout', async () => {
    await expect(startPenstock({ env, timeout: 1 })).rejects.toThrow(
      'penstock dev did not start within 1 ms',
    );
  });
});

describe('penstock dev of startPenstock', () => {
  /** Runs a program that prints the process id of its penstock dev, and then does `last`. */
  async function startParent(last: string) {
    const script = `
      import { startPenstock } from './dist/src/testing.js';
      const penstock = await startPenstock();
      console.log(JSON.stringify({ dev: penstock.pid }));
      ${last}`;
    const parent = startCommand(
      [process.execPath, '--input-type=module', '--eval', script],
      env,
      process.cwd(),
    );
    const line = await waitUntil(() => parent.log.find((one) => 'dev' in one), {
      what: 'the process id of penstock dev',
      deadline: 60_000,
      explain: async () => JSON.stringify(parent.log),
    });
    return { parent, pid: line.dev as number };
  }

  test('ends when the process of the tests is killed', async () => {
    const { parent, pid } = await startParent('setInterval(() => {}, 1000);');
    parent.kill('SIGKILL');
    await parent.exit;
    await waitUntil(() => !isRunning(pid), { what: 'the end of penstock dev' });
  });

  test('does not keep the process of the tests alive, and ends with it', async () => {
    const { parent, pid } = await startParent('');
    expect(await parent.exit).toEqual({ code: 0, signal: null });
    await waitUntil(() => !isRunning(pid), { what: 'the end of penstock dev' });
  });

  test('accepts requests after the machine had no time for it', async () => {
    process.kill(penstock.pid, 'SIGSTOP');
    const tracked = track('ada');
    const begin = performance.now();
    await waitUntil(() => performance.now() - begin > 2500, { what: 'a delay of the event loop' });
    process.kill(penstock.pid, 'SIGCONT');
    await tracked;
    await track('bob');
    expect(await users('ada', 'bob')).toEqual(['ada', 'bob']);
  });
});

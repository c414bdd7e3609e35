import { v7 as uuidv7 } from 'uuid';
import { afterEach, expect, test } from 'vitest';
import { readConfig } from '../src/platform/config.ts';
import { openQueue } from '../src/queue/bullmq-queues.ts';
import { connectProducer } from '../src/queue/connection.ts';
import { laneName } from '../src/queue/lanes.ts';
import { createDatabase } from './setup/fixtures.ts';
import { begin, endStarted, output, settings, startAndWait } from './setup/npm-start.ts';

afterEach(() => endStarted());

test('G3: npm start with another LANES applies it if the lanes are empty, or reports the rest', async () => {
  const { url } = await createDatabase();
  const env = { ...(await settings()), DATABASE_URL: url };
  const first = await startAndWait({ ...env, LANES: '1' });
  first.kill('SIGTERM');
  expect(await first.exit).toMatchObject({ code: 0 });
  const second = await startAndWait({ ...env, LANES: '2' });
  expect(second.log).toContainEqual(expect.objectContaining({ lanes: 2, before: 1 }));
  expect(second.log).toContainEqual(expect.objectContaining({ msg: 'ready', lanes: 2 }));
  second.kill('SIGTERM');
  expect(await second.exit).toMatchObject({ code: 0 });

  const connection = connectProducer(readConfig({ DATABASE_URL: url }), url);
  const lane = openQueue(connection, laneName(1));
  await lane.add('envelope', { requests: [], objects: [] }, { jobId: uuidv7() });
  const third = begin({ ...env, LANES: '1' });
  expect(await third.exit).toMatchObject({ code: 1 });
  expect(output(third)).toContain(
    'npm start: the number of lanes is still 2: the lanes still hold 1 jobs; run a worker with LANES=2 until they are empty',
  );
  await lane.close();
  await connection.stop();
});

import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from '../../../src/queue/ioredis.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { requestFor, untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

/** Megabytes that Redis may use in addition to its idle memory. */
const ROOM_MB = { long: 16, short: 4 };

export const fullRedis: Scenario = {
  number: 6,
  fault: 'Redis out of memory under overload',
  backends: ['redis'],
  async run(scene) {
    const { fleet, load, circles, knockKey } = await beginTraffic(
      scene,
      { env: { QUEUE_TIMEOUT_MS: '700' } },
      { peoplePerRequest: 25, maxUnapplied: 1_000_000, rate: Number.POSITIVE_INFINITY },
    );
    const redis = new Redis(fleet.redis!.url);
    redis.on('error', () => {});
    const used = async () => Number(/^used_memory:(\d+)/m.exec(await redis.info('memory'))?.[1]);
    await redis.config(
      'SET',
      'maxmemory',
      (await used()) + scene.choose(ROOM_MB.long, ROOM_MB.short) * 1024 * 1024,
    );
    // Redis fills quickly while the workers are stopped.
    for (const { pid } of fleet.workers) process.kill(pid, 'SIGSTOP');
    scene.say('flooding');
    const refused = () => load.journal.statuses().get(503) ?? 0;
    await waitUntil(() => refused() > 20, { what: 'the first refusals', deadline: 120_000 });
    const from = Date.now();
    await sleep(scene.choose(10_000, 1000));
    const full = Date.now();
    for (const { pid } of fleet.workers) process.kill(pid, 'SIGCONT');
    scene.say('the workers go on');
    const back = await untilAccepted(fleet, knockKey, 60_000);
    scene.recovered(back);
    const during = [...load.journal.sentBetween(from, full)];
    const refusals = during.filter(({ status }) => status === 503);
    const others = during.filter(
      ({ status, retryAfter }) => status !== 201 && !(status === 503 && retryAfter),
    );
    scene.figure('requests refused while it is full', refusals.length, '', { atLeast: 1 });
    scene.figure('answers but 201 and 503 with Retry-After', others.length, '', { atMost: 0 });
    scene.figure('accepted again after the workers went on', back / 1000, 's', { atMost: 30 });

    scene.say('past maxmemory itself, as when somebody else has filled it');
    await redis.config('SET', 'maxmemory', '1');
    const knocks = await requestFor(fleet, knockKey, scene.choose(5000, 1000));
    await redis.config('SET', 'maxmemory', '0');
    const again = await untilAccepted(fleet, knockKey, 60_000);
    scene.recovered(again);
    scene.figure(
      'answers past it but 503 with Retry-After',
      knocks.filter(({ status, retryAfter }) => status !== 503 || !retryAfter).length,
      '',
      { atMost: 0 },
    );
    scene.figure('accepted again when there is memory', again / 1000, 's', { atMost: 10 });
    redis.disconnect();
    await scene.waitUntilApplied(fleet, { load, circles });
  },
};

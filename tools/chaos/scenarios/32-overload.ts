import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from '../../../test/guarantees/keep-alive-client.ts';
import { countProcessed, type Fleet, type Member } from '../../../test/setup/fleet.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { quantile } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

/** Offered load as a multiple of the measured peak. */
const TIMES = 3;

/** Clients before the peak is measured. */
const FEW_CLIENTS = 8;

/** Requests of which each median is taken, and milliseconds that it may always take. */
const PROBES = 9;
const USUAL_MS = 50;

/** Clients that retry immediately offer more than the service can process. */
export const overload: Scenario = {
  number: 32,
  fault: `${TIMES} × full load, offered by clients that retry immediately`,
  backends: ['redis', 'postgres'],
  async run(scene) {
    // With the default limits, it takes minutes until so many jobs wait that requests are refused.
    const env = {
      MAX_WAITING_ENVELOPES: scene.choose('800', '160'),
      MAX_ENVELOPE_OBJECTS: scene.choose('50', '20'),
    };
    const clients = scene.choose(256, 128);
    const { fleet, load, circles, knockKey } = await beginTraffic(
      scene,
      { env },
      // Identity operations make lanes wait for each other, which would hide the limit of the load.
      { clients, active: FEW_CLIENTS, maxUnapplied: scene.choose(8000, 1000), identityPause: 200 },
    );
    const probe = createProbe(fleet, knockKey);
    load.change({ rate: scene.choose(300, 30) });
    await sleep(scene.choose(3000, 1000));
    const before = await medianOf(PROBES, probe);

    scene.say('measuring the peak');
    load.change({ active: clients, rate: Number.POSITIVE_INFINITY });
    await sleep(scene.choose(2000, 500));
    const peak = await rateDuring(scene.choose(10_000, 3000));

    scene.say(`${TIMES} × the peak`);
    load.change({
      ...{ rate: TIMES * peak, maxUnapplied: Number.POSITIVE_INFINITY, isImpatient: true },
    });
    const [from, objects] = [Date.now(), load.journal.objects];
    const goodput = await rateDuring(scene.choose(30_000, 8000));
    const seconds = (Date.now() - from) / 1000;
    const offered = (load.journal.objects - objects) / seconds;
    const requests = [...load.journal.sentBetween(from, Date.now())];

    scene.say('after the load');
    const stopped = load.stop();
    const ended = performance.now();
    let after = await medianOf(PROBES, probe);
    const limit = Math.max(2 * before, USUAL_MS);
    while (after > limit && performance.now() - ended < 30_000) after = await medianOf(PROBES, probe);
    const back = performance.now() - ended;
    await stopped;

    scene.figure('peak, objects/s applied', peak, '');
    scene.figure('offered, multiple of the peak', offered / peak, '', { atLeast: scene.choose(TIMES, 1) });
    scene.figure('goodput, share of the peak', goodput / peak, '', { atLeast: scene.choose(0.9, 0.5) });
    scene.figure('refused requests/s', requests.filter(({ status }) => status === 503).length / seconds, '', {
      atLeast: 1,
    });
    const others = load.journal.requestsBut([201, 503]);
    scene.figure('requests with another answer than 201 and 503', others, '', { atMost: 0 });
    scene.figure('a lone object until it is applied, before, median', before, 'ms');
    scene.figure('the same after the load', after, 'ms', { atMost: limit });
    scene.figure('until that is usual again', back / 1000, 's', { atMost: 10 });
    await scene.waitUntilApplied(fleet, { load, circles });

    /** Returns the objects that are applied per second, by the workers' own count. */
    async function rateDuring(milliseconds: number): Promise<number> {
      const used = () => [fleet.edges, fleet.workers].map(processorSeconds);
      const [count, before, begin] = [await countProcessed(fleet), used(), performance.now()];
      await sleep(milliseconds);
      const seconds = (performance.now() - begin) / 1000;
      const [web, workers] = used().map((now, index) => ((now - before[index]!) / seconds).toFixed(2));
      scene.notes.push(`processors in use: web ${web}, workers ${workers}`);
      return ((await countProcessed(fleet)) - count) / seconds;
    }
  },
};

/** Clock ticks per second in /proc, the same on every Linux. */
const TICKS = 100;

/** Returns the processor time that processes have used, user and system. NaN without /proc. */
function processorSeconds(members: Member[]): number {
  const ticks = members.map(({ pid }) => {
    if (!existsSync(`/proc/${pid}/stat`)) return Number.NaN;
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of a program may have spaces, so fields are counted after it.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(fields[11]) + Number(fields[12]);
  });
  return ticks.reduce((sum, one) => sum + one, 0) / TICKS;
}

/**
 * Returns a function that sends one object of another workspace, waits until it is applied, and returns the
 * milliseconds.
 */
function createProbe(fleet: Fleet, key: string): () => Promise<number> {
  let number = 0;
  return async () => {
    const client = createClient(key);
    const user = `probe-${++number}`;
    const from = performance.now();
    await waitUntil(
      async () => {
        const { port } = fleet.edges[number % fleet.edges.length]!;
        const { status } = await client.post(port, '/users/track', { attributes: [{ external_id: user }] });
        return status === 201;
      },
      { what: 'a lone request to be accepted', fleeting: true },
    );
    await waitUntil(
      async () => {
        const { rows } = await fleet.pool.query('select from profiles where external_id = $1', [user]);
        return rows.length > 0;
      },
      { what: 'a lone object to be applied', fleeting: true },
    );
    client.close();
    return performance.now() - from;
  };
}

async function medianOf(count: number, measure: () => Promise<number>): Promise<number> {
  const values: number[] = [];
  for (let taken = 0; taken < count; taken++) values.push(await measure());
  return quantile(values, 0.5);
}

import { parseArgs } from 'node:util';
import { newId } from '../../src/platform/ids.ts';
import { SHARED, tagOf } from '../../src/queue/lanes.ts';
import { Accounts, SLICE_MS } from '../../workers/lane/accounts.ts';
import { Isolation } from '../../workers/lane/isolation.ts';
import { nextBatch, type WaitingEnvelope } from '../../workers/lane/next-batch.ts';
import { median } from './figure.ts';

/**
 * `npm run build:tools && node dist/tools/bench/next-batch.js` measures how long a worker takes to choose the next
 * batch of a lane in which many workspaces wait. It needs no server, and takes a few seconds.
 */

/** Units per slice at a usual pace of 20 units per millisecond. */
const SLICE = 20 * SLICE_MS;

const limits = { objects: 4000, bytes: 4_194_304, slice: SLICE, isolation: new Isolation() };

/** Calls per round, because the processor time of a process is not measured exactly. */
const CALLS = 20;

const { values } = parseArgs({
  options: {
    workspaces: { type: 'string', default: '10000' },
    rounds: { type: 'string', default: '40' },
  },
});
const [workspaces, rounds] = [values.workspaces, values.rounds].map(Number) as [number, number];
const workspaceIds = Array.from({ length: workspaces }, () => newId());
const size = { objects: 3, bytes: 900 };

/** Each workspace has one envelope. */
const own: WaitingEnvelope[] = workspaceIds.map((id) => ({
  ...{ id: newId(), tag: tagOf(id), parts: new Map([[id, size]]) },
}));

/** Each envelope has objects of 50 workspaces. */
const shared: WaitingEnvelope[] = Array.from({ length: Math.ceil(workspaces / 50) }, (_, number) => ({
  ...{ id: newId(), tag: SHARED },
  parts: new Map(workspaceIds.slice(50 * number, 50 * (number + 1)).map((id) => [id, size])),
}));

for (const [name, window] of [
  ['an envelope of each workspace', own],
  ['envelopes of 50 workspaces', shared],
] as const)
  for (const isServed of [false, true]) {
    const accounts = new Accounts();
    // Workspaces that were served by different amounts have to be sorted.
    if (isServed)
      for (const [number, id] of workspaceIds.entries())
        accounts.charge({
          units: new Map([[id, 1 + ((number * 7919) % SLICE)]]),
          objects: new Map([[id, 3]]),
          ...{ milliseconds: 1, isCut: false },
        });
    const milliseconds: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const begun = process.cpuUsage();
      for (let call = 0; call < CALLS; call++) nextBatch(window, accounts, limits);
      const { user, system } = process.cpuUsage(begun);
      milliseconds.push((user + system) / 1000 / CALLS);
    }
    process.stdout.write(
      `${workspaces} workspaces, ${name}, ${isServed ? 'served differently' : 'not served yet'}: ` +
        `${median(milliseconds.slice(rounds / 4)).toFixed(2)} ms of processor time\n`,
    );
  }

import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { busyWorker, everyLaneMoves } from '../../../test/setup/fleet.ts';
import { pick } from '../../load/random.ts';
import { checkListHistory } from '../check/list-history.ts';
import { startLists } from '../load/lists.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

/** Concurrent clients write and read the same lists while workers and web processes are killed and frozen. */
export const listHistories: Scenario = {
  number: 40,
  fault: 'histories of lists, read and written by many clients, under kills and freezes',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { fleet, load, circles } = await beginTraffic(scene);
    const lists = await startLists(fleet, {
      ...{ seed: scene.seed, clients: scene.choose(12, 6), users: scene.choose(40, 8) },
      pause: scene.choose(5, 20),
    });
    for (let faults = 0; faults < scene.choose(20, 2); faults++) {
      const victim = await busyWorker(fleet);
      if (faults % 2 === 0) {
        scene.say(`kill -9 of ${victim.name}`);
        await fleet.end(victim);
        await fleet.startWorker();
      } else {
        scene.say(`SIGSTOP to ${victim.name}`);
        victim.kill('SIGSTOP');
        await everyLaneMoves(fleet, 30_000).catch(() => {});
        victim.kill('SIGCONT');
      }
      if (faults % 5 === 4) {
        const edge = pick(scene.random, fleet.edges);
        await fleet.end(edge);
        await fleet.startEdge(edge.port);
      }
      await sleep(scene.choose(1000, 100));
    }
    await lists.stop();
    await scene.waitUntilApplied(fleet, {
      ...{ load, circles },
      async compare() {
        const findings = checkListHistory(lists.history, await lists.last());
        if (findings.length > 0) scene.notes.push(`history of the lists: ${keep(lists.history)}`);
        return findings;
      },
    });
    const count = (kind: string) => lists.history.filter((one) => one.kind === kind).length;
    scene.figure('adds to lists', count('add'), '', { atLeast: scene.choose(2000, 20) });
    scene.notes.push(`${count('remove')} removals and ${count('read')} reads of lists`);
  },
};

/** Writes one operation per line for other checkers. @returns the path of the file */
function keep(history: readonly object[]): string {
  const file = path.join(mkdtempSync(path.join(tmpdir(), 'penstock-history-')), 'lists.jsonl');
  writeFileSync(file, history.map((one) => `${JSON.stringify(one)}\n`).join(''));
  return file;
}

import { spawn } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packageRoot } from '../../../src/platform/files.ts';
import type { Fleet } from '../../../test/setup/fleet.ts';
import { untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic } from '../traffic.ts';

const SHARDS = 4;

/**
 * Milliseconds in which a command that moves a workspace may be killed. A move takes about one second in
 * total.
 */
const LATEST_KILL_MS = 1600;

/** The process that is killed while the workspace moves. */
const victims = ['nobody', 'the moving command', 'an edge', 'a worker'] as const;

interface Moved {
  code: number | null;
  /** Maximum milliseconds for which its requests were held. */
  held: number;
}

/** Runs `penstock workspaces move` in a separate process, which may be killed. */
function move({ env, workspace }: Fleet, to: number) {
  const file = path.join(packageRoot, 'dist/src/cli.js');
  const words = ['workspaces', 'move', workspace.id, '--shard', String(to), '--json'];
  const command = spawn(process.execPath, [file, ...words], { env: { ...process.env, ...env } });
  let output = '';
  command.stdout.on('data', (chunk) => {
    output += chunk;
  });
  const ended = new Promise<Moved>((resolve) => {
    command.on('close', (code) => resolve({ code, held: code === 0 ? JSON.parse(output).held_ms : 0 }));
  });
  return { kill: () => command.kill('SIGKILL'), ended };
}

async function moveBeside(scene: Scene, { fleet, to, victim, knockKey }: Given): Promise<Moved> {
  scene.say(`to shard ${to}, and kill -9 of ${victim}`);
  const moving = move(fleet, to);
  await sleep(scene.random() * LATEST_KILL_MS);
  if (victim === 'the moving command') moving.kill();
  if (victim === 'an edge') {
    const edge = fleet.edges[0]!;
    await fleet.end(edge);
    const successor = await fleet.startEdge(edge.port);
    await untilAccepted({ ...fleet, edges: [successor] }, knockKey, 20_000);
  }
  if (victim === 'a worker') {
    await fleet.end(fleet.workers[0]!);
    await fleet.startWorker();
  }
  return moving.ended;
}

interface Given {
  fleet: Fleet;
  to: number;
  victim: (typeof victims)[number];
  knockKey: string;
}

/**
 * A workspace moves between shards while it sends requests. Their order is kept, and they are never refused.
 */
export const movedWorkspace: Scenario = {
  number: 31,
  fault:
    'a workspace moves to other shards under load; `kill -9` of the moving command, of edges, of workers meanwhile',
  backends: ['redis'],
  async run(scene) {
    const env = { SHARDS: String(SHARDS), LANES: '2' };
    const { fleet, load, circles, knockKey } = await beginTraffic(scene, { env, edges: 2, workers: 2 });
    let moved = 0;
    let longest = 0;
    for (let round = 0; round < scene.choose(40, 8); round++) {
      const victim = victims[round % victims.length]!;
      const { code, held } = await moveBeside(scene, { fleet, to: (round + 1) % SHARDS, victim, knockKey });
      if (code === 0) moved++;
      longest = Math.max(longest, held);
      await load.more(scene.choose(500, 100));
    }
    await scene.waitUntilApplied(fleet, { load, circles });
    // A killed command may or may not have moved the workspace. After a worker was killed, few objects are
    // applied for a while.
    scene.figure('moves that took place', moved, '', { atLeast: scene.choose(20, 4) });
    scene.figure('longest hold', longest / 1000, 's', { atMost: 1, firm: true });
    // A killed web process does not respond.
    const odd = load.journal.requestsBut([201, 0]);
    scene.figure('requests with another answer than 201', odd, '', { atMost: 0 });
  },
};

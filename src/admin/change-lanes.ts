import { setTimeout as sleep } from 'node:timers/promises';
import { openQueue, type QueueConnection } from '../queue/connection.ts';
import { laneName } from '../queue/lanes.ts';
import { recordAudit } from '../store/audit.ts';
import { inTransaction } from '../store/database.ts';
import {
  lockLanes,
  type Member,
  presentMembers,
  readLanes,
  SILENCE_MS,
  setLanes,
} from '../store/installation.ts';
import { commandLine } from './audit.ts';
import { Refusal } from './command.ts';
import type { Installation } from './lookup.ts';
import { withQueueConnection } from './queue.ts';

/** Between two looks at what is in the way. */
const POLL_MS = 500;

/** Processes that are named in a message. */
const NAMED = 5;

export interface LanesChange {
  lanes: number;
  /** Seconds to wait until every lane is empty and every process has ended. */
  wait: number;
  /** Told what is in the way, whenever that changes. */
  say(hindrance: string): void;
}

/** What is in the way of another number of lanes. */
interface Hindrance {
  members: Member[];
  held: number;
}

/**
 * Gives the installation another number of lanes, as soon as no process runs and no lane holds anything: what waits in
 * one lane and what is added to another would lose their order.
 *
 * @returns the number that it had
 * @throws {Refusal} when something was in the way all the time, or nobody is there to empty the lanes
 */
export async function changeLanes(installation: Installation, change: LanesChange): Promise<number> {
  const { pool } = installation.database;
  const before = await readLanes(pool);
  if (before === undefined)
    throw new Refusal('no process has run yet: the first that starts decides the number of lanes by LANES');
  if (before === change.lanes) return before;
  return withQueueConnection(installation, async (connection) => {
    let said = '';
    for (const deadline = Date.now() + change.wait * 1000; ; await sleep(POLL_MS)) {
      const hindrance = await changeNow(installation, connection, change.lanes);
      if (!hindrance) return before;
      const words = describe(hindrance, before);
      if (Date.now() > deadline || hindrance.members.length === 0)
        throw new Refusal(`the number of lanes is still ${before}: ${words}`);
      if (words !== said) change.say(words);
      said = words;
    }
  });
}

/** @returns what is in the way; undefined: it is changed */
async function changeNow(
  { database: { pool } }: Installation,
  connection: QueueConnection,
  lanes: number,
): Promise<Hindrance | undefined> {
  return inTransaction(pool, async (tx) => {
    const before = (await lockLanes(tx)) ?? lanes;
    // In this order: who was there a moment ago may have added something.
    const members = await presentMembers(tx);
    const held = await heldIn(connection, Math.max(before, lanes));
    if (members.length > 0 || held > 0) return { members, held };
    await setLanes(tx, lanes);
    const subject = { kind: 'queue', id: 'lanes' };
    const detail = { before, lanes };
    await recordAudit(tx, commandLine(), [{ action: 'queue.set_lanes', subject, detail }]);
    return undefined;
  });
}

/** Envelopes that wait or are in work. */
async function heldIn(connection: QueueConnection, lanes: number): Promise<number> {
  const queues = Array.from({ length: lanes }, (_, lane) => openQueue(connection, laneName(lane)));
  try {
    const counts = await Promise.all(queues.map((queue) => queue.getJobCountByTypes('waiting', 'active')));
    return counts.reduce((sum, count) => sum + count, 0);
  } finally {
    await Promise.all(queues.map((queue) => queue.close()));
  }
}

function describe({ members, held }: Hindrance, lanes: number): string {
  const named = members.slice(0, NAMED).map(({ name, host, pid }) => `${name} (${pid} on ${host})`);
  const more = members.length > NAMED ? `, and ${members.length - NAMED} more` : '';
  const running =
    named.length > 0
      ? `${named.join(', ')}${more} runs, or was killed less than ${SILENCE_MS / 1000} s ago`
      : '';
  const holding =
    held > 0 ? `the lanes hold ${held} envelopes, which a worker with LANES=${lanes} applies` : '';
  return [running, holding].filter(Boolean).join('; ');
}

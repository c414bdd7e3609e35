import { setTimeout as sleep } from 'node:timers/promises';
import { openLanes, type QueueConnection } from '../queue/connection.ts';
import { recordAudit } from '../store/audit.ts';
import { inTransaction } from '../store/database.ts';
import {
  lockLanes,
  type Member,
  presentMembers,
  readSpread,
  SILENCE_MS,
  type Spread,
  setLanes,
} from '../store/installation.ts';
import { leaveShards } from '../store/workspace-shards.ts';
import { commandLine } from './audit.ts';
import { Refusal } from './command.ts';
import type { Installation } from './lookup.ts';
import { withQueueConnection } from './queue.ts';

/** Between two looks at what is in the way. */
const POLL_MS = 500;

/** Processes that are named in a message. */
const NAMED = 5;

export interface LanesChange {
  /** Of each shard. */
  lanes: number;
  /** Absent: as many as there are. */
  shards?: number | undefined;
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

/** Lanes of each shard, and shards. */
export interface Lanes {
  lanes: number;
  shards: number;
}

/**
 * Gives the installation another number of lanes or shards, as soon as no process runs and no lane holds anything. What
 * waits in one lane and what is added to another would lose their order. With more shards alone every lane is what it
 * was, and may hold what it likes.
 *
 * @returns what it had, and has
 * @throws {Refusal} when something was in the way all the time, or nobody is there to empty the lanes
 */
export async function changeLanes(
  installation: Installation,
  change: LanesChange,
): Promise<{ before: Lanes; after: Lanes }> {
  const { pool } = installation.database;
  const spread = await readSpread(pool);
  if (spread === undefined)
    throw new Refusal('no process has run yet: the first that starts decides the number of lanes by LANES');
  const before = lanesOf(spread);
  const after = { lanes: change.lanes, shards: change.shards ?? before.shards };
  if (before.lanes === after.lanes && before.shards === after.shards) return { before, after };
  return withQueueConnection(installation, async (connection) => {
    let said = '';
    for (const deadline = Date.now() + change.wait * 1000; ; await sleep(POLL_MS)) {
      const hindrance = await changeNow(installation, connection, after);
      if (!hindrance) return { before, after };
      const words = describe(hindrance, before.lanes);
      const what = before.lanes === after.lanes ? 'shards' : 'lanes';
      if (Date.now() > deadline || hindrance.members.length === 0)
        throw new Refusal(`the number of ${what} is still ${before[what]}: ${words}`);
      if (words !== said) change.say(words);
      said = words;
    }
  });
}

const lanesOf = ({ lanes, shards }: Spread): Lanes => ({ lanes: lanes / shards, shards });

/** @returns what is in the way; undefined: it is changed */
async function changeNow(
  { database: { pool } }: Installation,
  connection: QueueConnection,
  after: Lanes,
): Promise<Hindrance | undefined> {
  return inTransaction(pool, async (tx) => {
    const { lanes, shards } = after;
    const spread = await lockLanes(tx);
    const before = spread ? lanesOf(spread) : after;
    // In this order: who was there a moment ago may have added something.
    const members = await presentMembers(tx);
    const isGrowth = before.lanes === lanes && before.shards <= shards;
    const most = before.shards === 1 ? Math.max(before.lanes, lanes) : before.lanes * before.shards;
    const held = isGrowth ? 0 : await heldIn(connection, most);
    if (members.length > 0 || held > 0) return { members, held };
    await setLanes(tx, lanes * shards, shards);
    if (shards < before.shards) await leaveShards(tx, shards);
    const subject = { kind: 'queue', id: 'lanes' };
    const isSharded = before.shards > 1 || shards > 1;
    const detail = {
      before: before.lanes,
      lanes,
      ...(isSharded && { shards_before: before.shards, shards }),
    };
    await recordAudit(tx, commandLine(), [{ action: 'queue.set_lanes', subject, detail }]);
    return undefined;
  });
}

/** Envelopes that wait or are in work. */
async function heldIn(connection: QueueConnection, lanes: number): Promise<number> {
  const queues = openLanes(connection, lanes);
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

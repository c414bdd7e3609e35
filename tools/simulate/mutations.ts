import type { StoreKind } from './program.ts';

/** A text that occurs once in a source file, and its replacement. */
interface Edit {
  /** Path from the root of the repository. */
  file: string;
  find: string;
  replace: string;
}

/** A fault that is put into the source to show that simulations find it. */
export interface Mutation {
  name: string;
  /** Description for people. */
  fault: string;
  /** The form of the simulation that finds the fault; absent: the form in memory. */
  store?: StoreKind;
  edits: readonly Edit[];
}

/** Penstock had the first three faults until November 2026. */
export const mutations: readonly Mutation[] = [
  {
    name: 'read-goes-on-after-forget',
    fault: 'a read of waiting envelopes goes on in the middle after what it had found was forgotten',
    edits: [
      {
        file: 'workers/lane/prefetch.ts',
        find: '    prefix.forget();\n    looks++;\n',
        replace: '    prefix.forget();\n',
      },
    ],
  },
  {
    name: 'overtakes-own-workspace',
    fault: 'a small envelope overtakes an earlier one of its own workspace in the same lane',
    edits: [
      {
        file: 'workers/batch/fairness.ts',
        find: 'if (mayGo && !inPlace && !waiting.meet(piece)) {',
        replace: 'if (mayGo && !inPlace) {',
      },
    ],
  },
  {
    name: 'window-without-lease',
    fault:
      'a worker whose lease was lost takes envelopes from the lane, in front of which another worker has some',
    edits: [
      {
        file: 'workers/lane/prefetch.ts',
        find: 'const ids = lease ? await laneStore.window(lease, most) : await laneStore.head(lane, most);',
        replace: 'const ids = await laneStore.head(lane, most);',
      },
      {
        file: 'workers/lane/prefetch.ts',
        find: 'if (lease && ahead.some(({ id }, place) => ids[place] !== id)) return false;',
        replace: '',
      },
      {
        file: 'workers/lane/overtaking.ts',
        find: 'const ids = await laneStore.window(lease, MOST_JOBS);',
        replace: 'const ids = await laneStore.head(lease.lane, MOST_JOBS);',
      },
    ],
  },
  {
    name: 'cut-envelope-from-the-start',
    fault: 'what is left of a cut envelope is applied from its beginning',
    edits: [
      {
        file: 'workers/batch/parts.ts',
        find: '  if (left.size === 0) return opened;\n',
        replace: '  return opened;\n',
      },
    ],
  },
  {
    name: 'fence-before-the-last-lane',
    fault: 'a fence is applied when some of its lanes have come to it',
    edits: [
      {
        file: 'workers/fence/fences.ts',
        find: 'others.every(barrier.hasArrived)',
        replace: 'others.filter(barrier.hasArrived).length >= others.length - 1',
      },
    ],
  },
  {
    name: 'claims-what-is-applied',
    fault: 'an envelope that the ledger knows is applied again',
    edits: [
      {
        file: 'workers/batch/run-batch.ts',
        find: 'mine: deliveries.filter(({ id }) => claimed.has(id)),',
        replace: 'mine: deliveries,',
      },
    ],
  },
  {
    name: 'one-lane-in-two-transactions',
    fault: 'two transactions hold envelopes of one lane at the same time',
    edits: [
      {
        file: 'workers/lane/scheduler.ts',
        find: 'const isFree = (one: HandedIn) => !lanesOf(one).some((lane) => lanesInWork.has(lane));',
        replace: 'const isFree = (_one: HandedIn) => true;',
      },
    ],
  },
  {
    name: 'finished-before-applied',
    fault: 'an envelope leaves its lane before it has taken effect',
    edits: [
      {
        file: 'workers/lane/lane-worker.ts',
        find: '    await mine.applied();\n',
        replace: '',
      },
    ],
  },
  {
    name: 'add-reported-too-early',
    fault: 'web acknowledges a request before the queue has stored it',
    edits: [
      {
        file: 'src/queue/enqueue.ts',
        find: '    await producer.add(entries);\n    return NOBODY;',
        replace: '    void producer.add(entries).catch(() => {});\n    return NOBODY;',
      },
    ],
  },
  {
    name: 'cursor-before-delivery',
    fault: 'the cursor of a stream moves before the receiver has the messages',
    store: 'postgres',
    edits: [
      {
        file: 'workers/streams/deliver.ts',
        find: 'await destination.deliver({ id: batchId(messages), messages, envelopes }, lease.signal);',
        replace:
          'void destination.deliver({ id: batchId(messages), messages, envelopes }, lease.signal).catch(() => {});',
      },
    ],
  },
  {
    name: 'cursor-behind-a-part',
    fault: 'the cursor of a stream moves behind a row of the log of which a part is delivered',
    store: 'postgres',
    edits: [
      {
        file: 'workers/streams/read.ts',
        find: 'return place + 1 === ids.length ?',
        replace: 'return place < ids.length ?',
      },
    ],
  },
  {
    name: 'delete-without-merged-users',
    fault: 'a delete does not reach users who were merged into the deleted user',
    store: 'postgres',
    edits: [
      {
        file: 'workers/upkeep/tombstones.ts',
        find: 'const spread = await spreadDeletes(pool, keys, Math.ceil(SLICE / keys.length));',
        replace: 'const spread = 0 * keys.length * SLICE;',
      },
    ],
  },
  {
    name: 'cut-envelope-stays-in-the-ledger',
    fault: 'the ledger keeps an envelope of which a part is left, so that the rest is never applied',
    store: 'postgres',
    edits: [
      {
        file: 'src/store/ledger.ts',
        find: "await tx.query({ name: 'release-envelopes', text: released, values: keyValues(keys) });",
        replace: 'void [tx, keys, released];',
      },
    ],
  },
  {
    name: 'cut-envelope-forgets-its-rest',
    fault: 'what is left of a cut envelope is read without the places that are done',
    store: 'postgres',
    edits: [
      {
        file: 'src/store/ledger.ts',
        find: "name: 'read-cut-envelopes',\n    text: selected,\n    values: keyValues(keys),",
        replace: "name: 'read-cut-envelopes',\n    text: selected,\n    values: keyValues([]),",
      },
    ],
  },
];

/** Returns the mutations that a form of the simulation finds. */
export const mutationsOf = (kind: StoreKind): Mutation[] =>
  mutations.filter(({ store = 'memory' }) => store === kind);

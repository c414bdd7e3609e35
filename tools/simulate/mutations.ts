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
  /** Description that is printed. */
  fault: string;
  /** The form of the simulation that finds the fault. Default: `memory`. */
  store?: StoreKind;
  edits: readonly Edit[];
}

export const mutations: readonly Mutation[] = [
  {
    name: 'overtakes-own-workspace',
    fault: 'a batch takes a later envelope of a workspace in the place of one that is too large',
    edits: [
      {
        file: 'workers/lane/next-batch.ts',
        find: '      if (!isFirst && this.#exceeds(size)) return;\n',
        replace: '      if (!isFirst && this.#exceeds(size)) continue;\n',
      },
      {
        file: 'workers/lane/next-batch.ts',
        find: 'return this.#objects + objects > this.#limits.objects',
        replace: 'return objects > 3 || this.#objects + objects > this.#limits.objects',
      },
    ],
  },
  {
    name: 'batch-in-another-order',
    fault: 'the envelopes of a batch are applied in another order than that of the lane',
    edits: [
      {
        file: 'workers/lane/next-batch.ts',
        find: 'sort((one, other) => one - other);\n    return {',
        replace: 'sort((one, other) => other - one);\n    return {',
      },
    ],
  },
  {
    name: 'share-taken-from-the-middle',
    fault: 'a workspace gets other objects of an envelope than its first ones',
    edits: [
      {
        file: 'workers/batch/parts.ts',
        find: 'if (count > (shares?.get(workspaceId) ?? Number.POSITIVE_INFINITY)) return false;',
        replace:
          'if (shares?.has(workspaceId) && count % 2 === 0) {\n' +
          '      counts.set(workspaceId, count);\n' +
          '      return false;\n' +
          '    }',
      },
    ],
  },
  {
    name: 'completed-with-objects-left',
    fault: 'an envelope of which a part has taken effect leaves its lane',
    edits: [
      {
        file: 'workers/lane/scheduler.ts',
        find: 'const done = deliveries.flatMap(({ id }) => (left.has(id) ? [] : [id]));',
        replace: 'const done = deliveries.map(({ id }) => id);',
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
    name: 'deep-snapshot-without-ends',
    fault: 'a shared envelope is applied before envelopes that a deep snapshot omits',
    edits: [
      {
        file: 'workers/lane/lane-window.ts',
        find: 'if (count > max + 1) continue;\n',
        replace: 'if (count > max) continue;\n',
      },
    ],
  },
  {
    name: 'fence-before-the-last-lane',
    fault: 'a fence is applied when some of its lanes have come to it',
    edits: [
      {
        file: 'workers/fence/fences.ts',
        find: 'this.#missing(lanes, barrier).length === 0',
        replace: 'this.#missing(lanes, barrier).length <= 1',
      },
    ],
  },
  {
    name: 'fence-passed-by-its-workspace',
    fault: 'later objects of the workspace of a fence do not wait for the fence',
    edits: [
      {
        file: 'workers/lane/next-batch.ts',
        find: '      blocked.add(fence.workspaceId);\n',
        replace: '',
      },
    ],
  },
  {
    name: 'arrival-before-earlier-objects',
    fault: 'a lane arrives at a fence although earlier objects of the workspace have not taken effect in it',
    edits: [
      {
        file: 'workers/fence/fence-order.ts',
        find: 'common.set(workspaceId, NO_LANES);',
        replace: 'void [common, workspaceId, NO_LANES];',
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
        file: 'workers/lane/lane-worker.ts',
        find: 'void this.#refreshWindow(lease, batch.signal);',
        replace:
          'void this.#refreshWindow(lease, batch.signal);\n' +
          '      const others = window.envelopes().slice(1);\n' +
          '      void scheduler.step({ lane: this.#lane, envelopes: () => others });',
      },
    ],
  },
  {
    name: 'finished-before-applied',
    fault: 'an envelope leaves its lane before it has taken effect',
    edits: [
      {
        file: 'workers/lane/lane-worker.ts',
        find: 'if (isClosing || (isDone() && isOver)) {',
        replace: 'if (isClosing || isOver) {',
      },
      {
        file: 'workers/lane/lane-worker.ts',
        find: "return isDone() ? 'finish' : 'giveBack';",
        replace: "return 'finish';",
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
    fault: 'the cursor of a stream moves before the destination has the messages',
    store: 'postgres',
    edits: [
      {
        file: 'workers/streams/deliver.ts',
        find: 'await destination.deliver({ id: batchId(messages), messages, envelopes }, cursor.lease.signal);',
        replace:
          'void destination.deliver({ id: batchId(messages), messages, envelopes }, cursor.lease.signal).catch(() => {});',
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
        find: 'return index + 1 === ids.length ?',
        replace: 'return index < ids.length ?',
      },
      // A scheduler's transactions are small: rows of the log have to be cut sooner.
      {
        file: 'workers/streams/read.ts',
        find: 'const MAX_ENTRIES = 500;',
        replace: 'const MAX_ENTRIES = 3;',
      },
      {
        file: 'workers/streams/source.ts',
        find: 'const PART_ENTRIES = 250;',
        replace: 'const PART_ENTRIES = 2;',
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
        find: "await tx.query({ name: 'release-envelopes', text: releaseStatement, values: keyValues(keys) });",
        replace: 'void [tx, keys, releaseStatement];',
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
        find: "name: 'read-cut-envelopes',\n    text: readCutStatement,\n    values: keyValues(keys),",
        replace: "name: 'read-cut-envelopes',\n    text: readCutStatement,\n    values: keyValues([]),",
      },
    ],
  },
];

/** Returns the mutations that a form of the simulation finds. */
export const mutationsOf = (kind: StoreKind): Mutation[] =>
  mutations.filter(({ store = 'memory' }) => store === kind);

import type { Finding, Invariant } from './finding.ts';

/**
 * An operation of a client on the list of a user, as the client saw it. Times are in milliseconds of one
 * clock. A history is a list of operations, stored as one JSON object per line.
 */
export type ListOperation = {
  client: number;
  user: string;
  invoked: number;
} & (
  | {
      kind: 'add' | 'remove';
      value: string;
      /** Time of the response; absent for `unknown`. */
      completed?: number;
      /**
       * `ok`: acknowledged. `failed`: refused. `unknown`: no response, or a response that leaves the result
       * open.
       */
      outcome: 'ok' | 'failed' | 'unknown';
    }
  | { kind: 'read'; values: string[]; completed: number }
);

type Change = Extract<ListOperation, { kind: 'add' | 'remove' }>;
type Read = Extract<ListOperation, { kind: 'read' }>;

/**
 * Checks a history as Elle checks lists with appends. Each value is added once, so the order of a list shows
 * the order of its writes, and every read must be a prefix of one order. A removed value is not part of that
 * order and is checked separately.
 *
 * An acknowledged change takes effect later, so only the last reads, after the queue was empty, must show it.
 *
 * @param last the list of each user at the end
 */
export function checkListHistory(
  history: readonly ListOperation[],
  last: ReadonlyMap<string, readonly string[]>,
): Finding[] {
  const byUser = new Map<string, ListOperation[]>();
  for (const one of history) byUser.set(one.user, [...(byUser.get(one.user) ?? []), one]);
  return [...byUser].flatMap(([user, its]) => checkUser(user, its, last.get(user) ?? []));
}

function checkUser(user: string, history: ListOperation[], final: readonly string[]): Finding[] {
  const findings: Finding[] = [];
  const note = (invariant: Invariant, what: string) => findings.push({ invariant, what: `${user}: ${what}` });
  const adds = new Map<string, Change>();
  const removes = new Map<string, Change>();
  const reads: Read[] = [];
  for (const one of history)
    if (one.kind === 'read') reads.push(one);
    else (one.kind === 'add' ? adds : removes).set(one.value, one);
  reads.sort((one, other) => one.completed - other.completed);
  const end: Read = {
    ...{ kind: 'read', client: -1, user, values: [...final] },
    ...{ invoked: Number.POSITIVE_INFINITY, completed: Number.POSITIVE_INFINITY },
  };

  for (const { values, completed } of [...reads, end]) {
    const seen = new Set<string>();
    for (const value of values) {
      if (seen.has(value)) note('I2', `a read shows ${value} twice`);
      seen.add(value);
      const add = adds.get(value);
      if (!add) note('I3', `a read shows ${value}, which nobody added`);
      else if (add.outcome === 'failed') note('I3', `a read shows ${value}, whose add was refused`);
      else if (add.invoked > completed) note('I3', `a read shows ${value} before it was added`);
    }
  }

  const isStable = (value: string) => !isPossible(removes.get(value));
  const order = final.filter(isStable);
  let before: { values: string[]; read: Read } | undefined;
  for (const read of reads) {
    const values = read.values.filter(isStable);
    const wrong = values.findIndex((value, index) => order[index] !== value);
    if (wrong >= 0)
      note('I4', `a read is no prefix of the last one: ${values[wrong]} is in place of ${order[wrong]}`);
    // Reads that overlap may return in any order.
    if (before && before.read.completed < read.invoked && values.length < before.values.length)
      note('I4', `a read shows ${values.length} values after one that had shown ${before.values.length}`);
    if (!before || values.length >= before.values.length) before = { values, read };
  }

  const positions = new Map(final.map((value, position) => [value, position]));
  for (const { value, outcome } of adds.values()) {
    const removed = removes.get(value);
    if (outcome === 'ok' && !isPossible(removed) && !positions.has(value))
      note('I1', `${value} was acknowledged and is not there`);
    if (removed?.outcome === 'ok' && positions.has(value))
      note('I1', `the removal of ${value} was acknowledged and it is there`);
  }
  checkRemoved(removes, reads, note);
  checkAcceptance([...adds.values()], positions, note);
  return findings;
}

const isPossible = (change: Change | undefined): boolean =>
  change !== undefined && change.outcome !== 'failed';

/** Checks that a value disappears only after a remove, and does not come back. */
function checkRemoved(
  removes: ReadonlyMap<string, Change>,
  reads: Read[],
  note: (invariant: Invariant, what: string) => void,
): void {
  for (const [value, { invoked }] of removes) {
    let shown: Read | undefined;
    let gone: Read | undefined;
    for (const read of reads) {
      const isThere = read.values.includes(value);
      if (isThere && gone && gone.completed < read.invoked)
        note('I4', `${value} came back after its removal`);
      if (isThere) shown ??= read;
      else if (shown && shown.completed < read.invoked) {
        if (read.completed < invoked) note('I4', `${value} was gone before its removal`);
        gone ??= read;
      }
    }
  }
}

/** Checks that a value that was acknowledged before another add was sent precedes the value of that add. */
function checkAcceptance(
  adds: Change[],
  positions: ReadonlyMap<string, number>,
  note: (invariant: Invariant, what: string) => void,
): void {
  const placed = adds.filter(({ value }) => positions.has(value));
  placed.sort((one, other) => positions.get(one.value)! - positions.get(other.value)!);
  // The add with the latest sending time so far.
  let latest: Change | undefined;
  for (const add of placed) {
    if (latest && add.outcome === 'ok' && add.completed! < latest.invoked)
      note(
        'I4',
        `${latest.value} is before ${add.value}, which was acknowledged before ${latest.value} was sent`,
      );
    if (!latest || add.invoked > latest.invoked) latest = add;
  }
}

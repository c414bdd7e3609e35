import type { Journal, RequestEntry } from '../load/journal.ts';
import { nameOf } from '../load/people.ts';
import { describePerson, expectedPerson } from './expected-person.ts';
import type { Finding, Invariant } from './finding.ts';
import type { StoredPeople, StoredPerson } from './stored-people.ts';

export interface Sums {
  acknowledged: number;
  /** Acknowledged objects that are in the store. */
  applied: number;
  lost: number;
  doubled: number;
  outOfOrder: number;
  /** Objects of requests without a response or with 5xx, and the number of them that took effect. */
  unknown: number;
  unknownApplied: number;
  refused: number;
}

export interface PeopleVerdict {
  findings: Finding[];
  sums: Sums;
  /** Objects whose loss `mayLose` allows. */
  lostAsAllowed: number;
}

/**
 * Compares the journal of the load client with the store: I1 to I4 for each object, I5 for each person.
 *
 * @param mayLose returns whether acknowledged objects of a request may be lost, for a queue that comes back
 * empty
 */
export function checkPeople(
  journal: Journal,
  stored: StoredPeople,
  mayLose: (request: RequestEntry) => boolean = () => false,
): PeopleVerdict {
  const findings: Finding[] = [];
  const addFinding = (invariant: Invariant, what: string) => void findings.push({ invariant, what });
  const sums: Sums = {
    acknowledged: 0,
    applied: 0,
    lost: 0,
    doubled: 0,
    outOfOrder: 0,
    unknown: 0,
    unknownApplied: 0,
    refused: 0,
  };
  let lostAsAllowed = 0;
  const counts = countEffects(journal, stored, addFinding, sums);
  const deadLetters = new Map(stored.deadLetters.map(({ object, reason }) => [object, reason]));

  for (let object = 0; object < journal.objects; object++) {
    const state = journal.stateOf(object);
    const count = counts[object]!;
    sums[state]++;
    if (state === 'refused') {
      if (count > 0) addFinding('I3', `${journal.describe(object)} was refused and is stored`);
      continue;
    }
    if (count > 1) {
      sums.doubled++;
      addFinding(state === 'unknown' ? 'I3' : 'I2', `${journal.describe(object)} is stored ${count} times`);
    }
    if (state === 'unknown') {
      if (count > 0) sums.unknownApplied++;
    } else if (count > 0) sums.applied++;
    else if (mayLose(journal.request(journal.requestOf(object)))) lostAsAllowed++;
    else {
      sums.lost++;
      const reason = deadLetters.get(String(object));
      addFinding('I1', `${journal.describe(object)} is not there${reason ? `; dead letter: ${reason}` : ''}`);
    }
  }
  for (const name of stored.twins) addFinding('I2', `${name} is stored as more than one profile`);
  for (const sum of stored.wrongSums) addFinding('I2', `rows and summary differ: ${sum}`);
  for (const stranger of stored.strangers) addFinding('I2', stranger);
  for (const { object, reason } of stored.deadLetters) {
    if (Number(object) < journal.objects && counts[Number(object)]! > 0)
      addFinding('I2', `${journal.describe(Number(object))} is stored and is a dead letter: ${reason}`);
    else addFinding('I1', `a dead letter: ${object}: ${reason}`);
  }

  forEachPerson(journal, (person, objects) => {
    const profile = stored.people.get(nameOf(person));
    if (!profile?.custom.log) return;
    sums.outOfOrder += checkOrder(journal, profile, addFinding);
    const expected = expectedPerson(journal, profile, objects, counts);
    const actual = describePerson(profile);
    if (actual !== expected) addFinding('I5', `${profile.name} is ${actual} and not ${expected}`);
  });
  return { findings, sums, lostAsAllowed };
}

/**
 * Counts how often each object took effect. Attributes are counted in the person's `log`, and `points` checks
 * their total.
 */
function countEffects(
  journal: Journal,
  { people, rows }: StoredPeople,
  result: (invariant: Invariant, what: string) => void,
  sums: Sums,
): Uint8Array {
  const counts = rows.slice();
  for (const { name, custom } of people.values()) {
    for (const object of custom.log ?? []) {
      const mine = object < journal.objects && nameOf(journal.userOf(object)) === name;
      if (!mine || journal.kindOf(object) !== 'attributes')
        result('I2', `${name} has object ${object} in its log`);
      else counts[object]!++;
    }
    const [entries, points] = [custom.log?.length ?? 0, custom.points ?? 0];
    if (points !== entries) {
      sums.doubled += Math.abs(points - entries);
      const last = custom.log?.at(-1) ?? 0;
      result(
        'I2',
        `${name} has ${points} points of ${entries} attribute objects, up to ${journal.describe(last)}`,
      );
    }
  }
  return counts;
}

/**
 * Checks that the acknowledged attribute objects of a person took effect in the order in which they were
 * acknowledged.
 */
function checkOrder(
  journal: Journal,
  { name, custom }: StoredPerson,
  matches: (invariant: Invariant, what: string) => void,
): number {
  let outOfOrder = 0;
  let latest = -1;
  for (const object of custom.log) {
    if (journal.stateOf(object) !== 'acknowledged') continue;
    if (object < latest) {
      outOfOrder++;
      matches(
        'I4',
        `${journal.describe(object)} took effect after object ${latest}, which was accepted later`,
      );
    }
    latest = Math.max(latest, object);
  }
  const last = custom.log.at(-1)!;
  if (custom.seq !== journal.roundOf(last)) {
    outOfOrder++;
    matches(
      'I4',
      `${name} has the value ${custom.seq} of another round than ${journal.describe(last)}, its last`,
    );
  }
  return outOfOrder;
}

/** Visits each person with its objects in the order of sending. */
function forEachPerson(journal: Journal, visit: (person: number, objects: number[]) => void): void {
  let people = 0;
  for (let object = 0; object < journal.objects; object++)
    people = Math.max(people, journal.userOf(object) + 1);
  const ends = new Uint32Array(people + 1);
  for (let object = 0; object < journal.objects; object++) ends[journal.userOf(object) + 1]!++;
  for (let person = 0; person < people; person++) ends[person + 1]! += ends[person]!;
  const next = ends.slice();
  const sorted = new Uint32Array(journal.objects);
  for (let object = 0; object < journal.objects; object++) sorted[next[journal.userOf(object)]!++] = object;
  for (let person = 0; person < people; person++) {
    const objects = sorted.subarray(ends[person], ends[person + 1]);
    if (objects.length > 0) visit(person, [...objects]);
  }
}

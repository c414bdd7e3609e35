import type { AcceptedAttributes } from '../../src/jobs/envelope.ts';
import { typeOfChange, typeOfValue } from '../../src/profile/attribute-types.ts';
import { type AttributeNameRow, countAttributeNames, MAX_NAMES } from '../../src/store/attribute-names.ts';
import type { Connection } from '../../src/store/database.ts';
import { sendPipelined } from '../../src/store/transactions.ts';
import type { WorkItem } from './work-item.ts';

/** Maximum number of names, over all workspaces, that a process remembers: about 10 MB. */
const MAX_REMEMBERED = 100_000;

/** Maximum number of workspaces whose new names one transaction records. A later transaction records the others. */
const MAX_WORKSPACES = 100;

/** Milliseconds for which new names of a workspace with MAX_NAMES names are ignored. */
const FULL_MS = 3_600_000;

/** Attribute names by workspace; the value of a name is a bit set of types. */
type Names = Map<string, Map<string, number>>;

/**
 * Records the names and types of the custom attributes of each workspace. A name that this process has already recorded
 * costs one lookup in memory; a new name is written in the transaction that applies the object.
 */
export class AttributeNames {
  #remembered: Names = new Map();
  #count = 0;
  /** Time in `performance.now()` milliseconds at which a full workspace is checked again, by workspace. */
  readonly #full = new Map<string, number>();

  /** Returns the names and types among applied objects that this process has not recorded yet. */
  newAmong(applied: readonly WorkItem[]): Names {
    const newNames: Names = new Map();
    for (const { workspaceId, object } of applied) {
      if (object.kind !== 'attributes') continue;
      if (this.#full.size > 0 && this.#isFull(workspaceId)) continue;
      this.#collect(newNames, workspaceId, object);
    }
    return newNames;
  }

  #collect(newNames: Names, workspaceId: string, { set, change }: AcceptedAttributes): void {
    const remembered = this.#remembered.get(workspaceId);
    const add = (name: string, type: number) => {
      if (type === 0 || ((remembered?.get(name) ?? 0) & type) !== 0) return;
      let names = newNames.get(workspaceId);
      if (!names) {
        if (newNames.size >= MAX_WORKSPACES) return;
        names = new Map();
        newNames.set(workspaceId, names);
      }
      names.set(name, (names.get(name) ?? 0) | type);
    };
    for (const name in set) add(name, typeOfValue(set[name]!));
    for (const name in change) add(name, typeOfChange(change[name]!));
  }

  #isFull(workspaceId: string): boolean {
    const until = this.#full.get(workspaceId);
    if (until === undefined) return false;
    if (performance.now() < until) return true;
    this.#full.delete(workspaceId);
    return false;
  }

  /** Turns new names into rows, up to MAX_NAMES per workspace. */
  async rowsOf(tx: Connection, newNames: Names): Promise<AttributeNameRow[]> {
    const workspaces = [...newNames.keys()];
    const counts = await sendPipelined(
      tx,
      workspaces.map((workspaceId) => () => countAttributeNames(tx, workspaceId)),
    );
    return workspaces.flatMap((workspaceId, index) => {
      const room = MAX_NAMES - counts[index]!;
      if (room <= 0) this.#full.set(workspaceId, performance.now() + FULL_MS);
      const names = [...newNames.get(workspaceId)!].slice(0, room);
      return names.map(([name, types]) => ({ workspaceId, name, types }));
    });
  }

  /** Remembers rows whose transaction has been committed. */
  remember(rows: readonly AttributeNameRow[]): void {
    if (this.#count + rows.length > MAX_REMEMBERED) {
      this.#remembered = new Map();
      this.#count = 0;
    }
    for (const { workspaceId, name, types } of rows) {
      let names = this.#remembered.get(workspaceId);
      if (!names) {
        names = new Map();
        this.#remembered.set(workspaceId, names);
      }
      const before = names.get(name);
      if (before === undefined) this.#count++;
      names.set(name, (before ?? 0) | types);
    }
  }
}

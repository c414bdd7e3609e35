import type { Effect } from '../database.ts';
import type { Trace } from '../trace.ts';
import type { Result, Statement } from './gate.ts';

/** The claims and effects of an open transaction, derived from its statements. */
export class Transaction {
  readonly id: number;
  readonly client: string;
  readonly #trace: Trace;
  readonly #claimed = new Set<string>();
  readonly #released = new Set<string>();
  /** Whether objects of an envelope are left, by id of the cut envelope. */
  readonly #cut = new Map<string, boolean>();
  readonly #effects: Effect[] = [];
  readonly #savepoints: { name: string; effects: number }[] = [];

  constructor({ id, client, trace }: { id: number; client: string; trace: Trace }) {
    this.id = id;
    this.client = client;
    this.#trace = trace;
  }

  /** Records objects that take effect if the transaction commits. */
  record(effects: readonly Effect[]): void {
    this.#effects.push(...effects);
  }

  note({ name, text, values = [] }: Statement, { rows }: Result): void {
    const savepoint = /^(savepoint|release savepoint|rollback to savepoint) (\w+)/i.exec(text);
    if (savepoint) this.#noteSavepoint(savepoint[1]!.toLowerCase(), savepoint[2]!);
    switch (name) {
      case 'claim-envelopes': {
        const claimed = rows[0]!.ids as string[];
        for (const id of claimed) this.#claimed.add(id);
        this.#trace.note('claimed', { tx: this.id, by: this.client, claimed, asked: values[1] });
        return;
      }
      case 'release-envelopes':
        for (const id of values[1] as string[]) this.#released.add(id);
        return;
      case 'cut-envelopes':
        for (const { id } of JSON.parse(values[0] as string) as { id: string }[]) this.#cut.set(id, true);
        return;
      case 'drop-cut-envelopes':
        for (const id of values[1] as string[]) this.#cut.set(id, false);
        return;
    }
  }

  #noteSavepoint(action: string, name: string): void {
    if (action === 'savepoint') this.#savepoints.push({ name, effects: this.#effects.length });
    const index = this.#savepoints.findLastIndex((savepoint) => savepoint.name === name);
    if (action === 'release savepoint') this.#savepoints.splice(index);
    if (action !== 'rollback to savepoint') return;
    this.#effects.length = this.#savepoints[index]!.effects;
    this.#savepoints.length = index + 1;
  }

  commit(effects: Effect[]): void {
    effects.push(...this.#effects);
    if (this.#claimed.size === 0 && this.#effects.length === 0) return;
    this.#trace.note('committed', {
      tx: this.id,
      by: this.client,
      objects: this.#effects.map(({ objectId, kind }) =>
        kind === 'applied' ? objectId : `${objectId} (${kind})`,
      ),
      envelopes: [...this.#claimed].filter((id) => !this.#released.has(id)),
      cut: [...this.#cut].flatMap(([id, isLeft]) => (isLeft ? [id] : [])),
      continued: [...this.#cut].flatMap(([id, isLeft]) => (isLeft ? [] : [id])),
    });
  }

  rollback(): void {
    if (this.#claimed.size === 0) return;
    this.#trace.note('rolled back', { tx: this.id, by: this.client, claimed: [...this.#claimed] });
  }
}

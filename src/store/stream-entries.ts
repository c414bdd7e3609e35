import { newId } from '../platform/ids.ts';
import type { JsonText } from '../profile/json.ts';
import { uuidArray } from './arrays.ts';
import { elementsOf, type UuidElements, uuidColumn } from './columns.ts';
import type { ActivityIds } from './events.ts';

/** Event, purchase, attributes, subscription, identity. */
export type StreamKind = 'e' | 'p' | 'a' | 's' | 'i';

/** Something that took effect. */
export interface StreamEntry {
  workspaceId: string;
  kind: StreamKind;
  /** NIL where it is about no single user. */
  profileId: string;
  /** Of the event or purchase, a UUID. Absent: it gets one of its own. */
  id?: string;
  /** Absent for events and purchases, which are read from their tables. */
  detail?: JsonText;
}

/** Entries of a round, about. */
const TYPICAL = 512;

/** The last 32 of an id's random bits. */
const LAST_WORD = 9;

/** Ids like one that was drawn, counted on in bits of it that are random. */
function drawIds(): { next(): UuidElements } {
  const drawn = elementsOf(uuidArray([newId()], String));
  return {
    next() {
      drawn[LAST_WORD]!++;
      return drawn;
    },
  };
}

/** What took effect in one workspace, in its order. By column: there are as many entries as objects. */
export class StreamEntries {
  readonly workspaceId: string;
  readonly #kinds: StreamKind[] = [];
  readonly #profileIds = uuidColumn(TYPICAL);
  readonly #ids = uuidColumn(TYPICAL);
  readonly #drawn = drawIds();
  /** Members of an object, in the order of the places that name them. */
  readonly #details: { place: number; detail: JsonText }[] = [];

  constructor(workspaceId: string) {
    this.workspaceId = workspaceId;
  }

  /** An event or a purchase, the one at the place. */
  addActivity(kind: 'e' | 'p', { profileIds, ids }: ActivityIds, place: number): void {
    this.#kinds.push(kind);
    this.#profileIds.addElement(profileIds, place);
    this.#ids.addElement(ids, place);
  }

  add({ kind, profileId, id, detail }: Omit<StreamEntry, 'workspaceId'>): void {
    if (detail !== undefined) this.#details.push({ place: this.#kinds.length, detail });
    this.#kinds.push(kind);
    this.#profileIds.addUuid(profileId);
    if (id === undefined) this.#ids.addElement(this.#drawn.next(), 0);
    else this.#ids.addUuid(id);
  }

  append(next: StreamEntries): void {
    const before = this.#kinds.length;
    for (const { place, detail } of next.#details) this.#details.push({ place: before + place, detail });
    for (const kind of next.#kinds) this.#kinds.push(kind);
    this.#profileIds.addAll(next.#profileIds);
    this.#ids.addAll(next.#ids);
  }

  /** Parameters of the statement that appends them. */
  columns(): [kinds: string, profileIds: Buffer, ids: Buffer, details: string | null] {
    return [
      this.#kinds.join(''),
      this.#profileIds.toParameter(),
      this.#ids.toParameter(),
      this.#details.length > 0 ? this.#members() : null,
    ];
  }

  /** Put together from texts: the attributes of a user are one already. */
  #members(): string {
    let text = '';
    for (const { place, detail } of this.#details)
      text += `${text === '' ? '{' : ','}"${place}":${detail.text}`;
    return `${text}}`;
  }
}

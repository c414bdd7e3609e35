import type { FileRange, LogPlace, Piece } from '../../src/streams/destination.ts';
import { cursorBehind, type Page } from './read.ts';
import type { Told } from './source.ts';

/** Of the envelopes of a file; and pages, as entries may have nothing to tell. A file ends with the first that is reached. */
const MOST = { bytes: 67_108_864, pages: 2000 };

const HOUR_MS = 3_600_000;

export interface GatherOptions {
  from: LogPlace;
  first: Page;
  /** Gives the page behind the last one. */
  next(): Promise<Page | undefined>;
  /** Where the file ends and the hour that it is of, where it was begun before. */
  planned?: { end: LogPlace; hour: Date } | undefined;
  /** The hour of the file before it: hours do not go back. */
  lastHour: Date | null;
  most?: typeof MOST;
}

export interface Gathered {
  /** How far it has come: everything up to here is in the file, or has nothing to tell. */
  end: LogPlace;
  messages: number;
  /** That of the first message; absent without one. */
  hour?: FileRange['hour'];
}

/**
 * What goes into one file: up to its planned end, else until it is large, a later hour begins, or nothing more is decided.
 * What is in it is read as it is taken, a page at a time.
 */
export function gather(options: GatherOptions): { gathered: Gathered; pieces: AsyncIterable<Piece> } {
  const { from, first, next, planned, lastHour, most = MOST } = options;
  const gathered: Gathered = planned ? { ...planned, messages: 0 } : { end: from, messages: 0 };
  let bytes = 0;

  /** @returns the envelope; undefined: the file ends before it */
  function taken({ row, place, message, envelope, bytes: length }: Told): string | undefined {
    if (planned && isBehind(cursorBehind(row, place), planned.end)) return undefined;
    const size = length + 1;
    const hour = hourOf(message.time);
    gathered.hour ??= lastHour && lastHour > hour ? lastHour : hour;
    const isFull = gathered.messages > 0 && bytes + size > most.bytes;
    if (!planned && (isFull || hour > gathered.hour)) return undefined;
    bytes += size;
    return envelope;
  }

  /** @returns whether the file goes on behind it */
  function take({ read, end }: Page): { piece: Piece; goesOn: boolean } {
    const piece: Piece = { messages: [], envelopes: [] };
    for (const one of read) {
      const envelope = taken(one);
      if (envelope === undefined) return { piece, goesOn: false };
      piece.messages.push(one.message);
      piece.envelopes.push(envelope);
      gathered.messages += 1;
      if (!planned) gathered.end = cursorBehind(one.row, one.place);
    }
    if (!planned) gathered.end = end;
    return { piece, goesOn: !planned || isBehind(planned.end, end) };
  }

  async function* pieces(): AsyncGenerator<Piece> {
    let page: Page | undefined = first;
    for (let pages = 1; page; pages++) {
      const { piece, goesOn } = take(page);
      yield piece;
      if (!goesOn || (!planned && pages >= most.pages)) return;
      page = await next();
    }
  }

  return { gathered, pieces: pieces() };
}

const hourOf = (time: string) => new Date(Math.floor(Date.parse(time) / HOUR_MS) * HOUR_MS);

function isBehind(one: LogPlace, other: LogPlace): boolean {
  const [a, b] = [BigInt(one.position), BigInt(other.position)];
  return a === b ? one.place > other.place : a > b;
}

import type { FailedObject } from '../src/store/dead-letters/insert-dead-letters.ts';
import type { Work } from './track/work.ts';

/** What does not fit its contract, and how many objects that do came before it. */
export type Parked = FailedObject & { place: number };

/** The objects of a batch. */
export interface Opened {
  works: Work[];
  parked: Parked[];
  /** Ids of those that are dead letters which are tried again. */
  replayed: Set<string>;
}

/**
 * Cuts a batch where a delete decides what becomes of dead letters that follow: it takes away those that were
 * accepted before it, and a replay of one of them that follows has no effect. Most batches are one stretch.
 */
export function cutAtDeletes(opened: Opened): Opened[] {
  const { works, parked, replayed } = opened;
  if (parked.length === 0 && replayed.size === 0) return [opened];
  const parkedAt = new Set(parked.map(({ place }) => place));
  const cuts = [0];
  let deleted = false;
  for (let place = 0; place <= works.length; place++) {
    const work = works[place];
    if (deleted && (parkedAt.has(place) || (work && replayed.has(work.object.id)))) {
      cuts.push(place);
      deleted = false;
    }
    if (work?.object.kind === 'delete') deleted = true;
  }
  return cuts.map((from, index) => {
    const to = cuts[index + 1] ?? Number.POSITIVE_INFINITY;
    return {
      works: works.slice(from, to),
      parked: parked.filter(({ place }) => place >= from && place < to),
      replayed,
    };
  });
}

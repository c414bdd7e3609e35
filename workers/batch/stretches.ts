import type { Connection } from '../../src/store/database.ts';
import { selectLetters } from '../../src/store/dead-letters.ts';
import { insertDeadLetters } from '../../src/store/failed-objects.ts';
import { type Applied, addApplied, nothingApplied, SMALL_ROUND, type Terms } from './apply.ts';
import { cutAtDeletes, type Opened } from './open.ts';
import { inTurns, leave, nothingLeft, type Part } from './parts.ts';
import type { WorkItem } from './work-item.ts';

/** What is applied of a batch at once. */
export type Apply = (tx: Connection, items: WorkItem[], terms: Terms) => Promise<Applied>;

export interface RunOptions {
  apply: Apply;
  part: Part;
}

/** Applies stretch by stretch, each in its turns, until the time of the part is over. */
export async function applyStretches(
  tx: Connection,
  opened: Opened,
  { apply, part, terms }: RunOptions & { terms: Terms },
) {
  const applied: WorkItem[] = [];
  const lost = new Set<string>();
  /** Dead letters before a delete of the same stretch: it may take them away, and their replay is in order. */
  const beforeDelete = new Set<string>();
  const total = nothingApplied();
  const left = nothingLeft();
  for (const stretch of cutAtDeletes(opened)) {
    if (left.origins.length > 0) {
      leave(left, stretch);
      continue;
    }
    if (opened.replayed.size > 0) await leaveOutForgotten(tx, stretch);
    if (stretch.deadLetters.length > 0) await insertDeadLetters(tx, stretch.deadLetters);
    for (const { id } of stretch.deadLetters) lost.add(id);
    for (const [place, items] of inTurns(stretch, part).entries()) {
      if (place > 0 && part.isForOthers) {
        leave(left, { items, deadLetters: [] });
        continue;
      }
      // Most of what is loaded for all of them would be loaded in vain, once more in each part.
      const isLate = items.length > 0 && part.late.has(items[0]!.workspaceId);
      const { count, ...done } = await apply(
        tx,
        items,
        isLate ? { ...terms, size: part.size ?? SMALL_ROUND } : terms,
      );
      addApplied(total, { count, ...done });
      for (const { item } of done.refused) lost.add(item.object.id);
      const tookEffect = (item: WorkItem) => lost.size === 0 || !lost.has(item.object.id);
      for (let index = 0; index < count; index++) if (tookEffect(items[index]!)) applied.push(items[index]!);
      leave(left, { items: items.slice(count), deadLetters: [] });
      const next = items[count];
      if (next) left.over.add(next.workspaceId);
      left.size = done.size;
    }
    if (stretch.items.some(({ object }) => object.kind === 'delete'))
      for (const { object } of stretch.items) beforeDelete.add(object.id);
  }
  return { ...total, applied, lost, beforeDelete, left };
}

/** A dead letter that a delete took away while its replay was on its way has no effect any more. */
async function leaveOutForgotten(tx: Connection, stretch: Opened): Promise<void> {
  const { items, deadLetters, replayed } = stretch;
  const keys = [
    ...items.map(({ object, workspaceId }) => ({ id: object.id, workspaceId })),
    ...deadLetters.map(({ id, workspaceId }) => ({ id, workspaceId })),
  ];
  const asked = keys.filter(({ id }) => replayed.has(id));
  const kept = new Set((await selectLetters(tx, asked)).map(({ id }) => id));
  const forgotten = new Set(asked.flatMap(({ id }) => (kept.has(id) ? [] : [id])));
  if (forgotten.size === 0) return;
  stretch.items = items.filter(({ object }) => !forgotten.has(object.id));
  stretch.deadLetters = deadLetters.filter(({ id }) => !forgotten.has(id));
}

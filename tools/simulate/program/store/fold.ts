import type { Changes } from '../../../../workers/batch/changes.ts';
import type { WorkItem } from '../../../../workers/batch/work-item.ts';

/** The objects that each round applies, in their order. */
export const folded = new WeakMap<Changes, WorkItem[]>();

export async function fold(
  items: WorkItem[],
  changes: Changes,
  { poison, until }: { poison: ReadonlyMap<string, string>; until: number },
): Promise<number> {
  const applied: WorkItem[] = [];
  folded.set(changes, applied);
  for (let index = 0; index < items.length; index++) {
    if (index > 0 && performance.now() > until) return index;
    const item = items[index]!;
    const reason = poison.get(item.object.id);
    if (reason === undefined) applied.push(item);
    else changes.refused.push({ item, reason });
  }
  return items.length;
}

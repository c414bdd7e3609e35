import type { BatchResult } from './failures.ts';
import type { Delivery } from './open.ts';
import { PART_MS, type Part, workspacesOf } from './parts.ts';

/** Whose time was over, over the parts of a coalescer: they go behind the others until nothing is left of theirs. */
export function createLate() {
  /** Those that wait for the longest first. */
  const late = new Set<string>();
  /** Whether the last part was for the others: every second one has a round of those. */
  let wasForOthers = false;
  /** Objects that the last round of theirs could do. */
  let size = 1;

  return {
    late: late as ReadonlySet<string>,

    /** What the next transaction does of what it is given. */
    nextPart(): Omit<Part, 'giveWay'> {
      wasForOthers = late.size > 0 && !wasForOthers;
      return { milliseconds: PART_MS, late: new Set(late), isForOthers: wasForOthers, size };
    },

    note(deliveries: Delivery[], result: BatchResult): void {
      const left = result.kind === 'applied' ? result.left : undefined;
      if (late.size > 0)
        for (const workspace of deliveries.flatMap(workspacesOf))
          if (!left?.workspaces.has(workspace)) late.delete(workspace);
      if (left && left.over.size > 0) size = left.size;
      for (const workspace of left?.over ?? []) {
        late.delete(workspace);
        late.add(workspace);
      }
    },
  };
}

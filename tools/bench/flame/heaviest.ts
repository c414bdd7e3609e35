import type { Frame } from './profile.ts';

const MAX_FUNCTIONS = 15;

/** Returns the functions with the most processor time of their own, over all callers. */
export function heaviest(root: Frame): { frame: string; share: number }[] {
  const self = new Map<string, number>();
  const visit = (frame: Frame) => {
    self.set(frame.name, (self.get(frame.name) ?? 0) + frame.self);
    for (const child of frame.children.values()) visit(child);
  };
  visit(root);
  return [...self]
    .sort(([, a], [, b]) => b - a)
    .slice(0, MAX_FUNCTIONS)
    .map(([frame, microseconds]) => ({ frame, share: microseconds / root.total }));
}

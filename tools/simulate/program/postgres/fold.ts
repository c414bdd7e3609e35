import { fold as realFold } from '../../../../workers/batch/fold/fold.ts';
import { folded } from '../store/fold.ts';

/** Folds objects, and records which objects the round folded. */
export const fold: typeof realFold = async (items, changes, terms) => {
  const count = await realFold(items, changes, terms);
  folded.set(changes, items.slice(0, count));
  return count;
};

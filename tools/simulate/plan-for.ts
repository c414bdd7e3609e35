import { type Plan, planOf } from './plan.ts';
import { postgresPlanOf } from './plan-postgres.ts';
import type { StoreKind } from './program.ts';

/** Creates the plan of a seed for a simulation with this store. */
export function planFor(store: StoreKind, seed: number): Plan {
  return store === 'postgres' ? postgresPlanOf(seed) : planOf(seed);
}

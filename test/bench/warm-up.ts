import type { Contender } from './contender.ts';
import type { Environment } from './environment.ts';
import { measurePipeline } from './measure-pipeline.ts';
import type { Size } from './rows.ts';

/** Both pipelines in both shapes, so that code is compiled, statements are prepared and pages are in memory. */
export async function warmUp(
  { ours, naive }: { ours: Contender; naive: Contender },
  environment: Environment,
  size: Size,
): Promise<void> {
  const seconds = Math.min(6, size.seconds);
  const unbounded = Number.POSITIVE_INFINITY;
  for (const objects of [75, 1]) {
    const shape = { objects, connections: 16, users: size.users, seconds };
    await measurePipeline(ours, environment, { ...shape, maxRequests: unbounded });
    await measurePipeline(naive, environment, { ...shape, maxRequests: objects === 1 ? 500 : 20 });
  }
}

import type { Contender } from './contender.ts';
import type { Environment } from './environment.ts';
import { measurePipeline } from './pipeline.ts';
import type { Size } from './size.ts';

/** Sends both request sizes, so that code is compiled, statements are prepared and pages are in memory. */
export async function warmUp(
  contender: Contender,
  environment: Environment,
  size: Size,
  maxObjects: number,
): Promise<void> {
  const seconds = Math.min(6, size.seconds);
  for (const objects of [75, 1]) {
    await measurePipeline(contender, environment, {
      objects,
      connections: 16,
      users: size.users,
      seconds,
      maxRequests: Math.ceil(maxObjects / objects),
    });
  }
}

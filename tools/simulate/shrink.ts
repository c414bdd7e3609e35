import type { Plan } from './plan.ts';
import type { Cluster } from './postgres/cluster.ts';
import type { SimulatedProgram } from './program.ts';
import { simulate } from './simulation.ts';

/**
 * Removes requests, objects and faults from a plan as long as it fails with the same guarantee.
 *
 * @param options.attempts maximum number of simulations. A limit of real time would make the result depend on the machine
 */
export async function shrink(
  program: SimulatedProgram,
  plan: Plan,
  {
    attempts,
    print,
    cluster,
  }: { attempts: number; print(line: string): void; cluster?: Cluster | undefined },
): Promise<Plan> {
  let attemptsLeft = attempts;
  const failureOf = async (candidate: Plan) => {
    attemptsLeft--;
    return (await simulate(program, candidate, { cluster })).violations[0]?.guarantee;
  };
  const failure = await failureOf(plan);
  if (failure === undefined) return plan;
  let smallest = plan;

  /** Removes parts of a list: first halves, then smaller parts, then single members. */
  async function remove<Member>(
    members: readonly Member[],
    planWith: (some: readonly Member[]) => Plan,
  ): Promise<readonly Member[]> {
    let kept = members;
    for (let size = Math.ceil(kept.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
      for (let from = 0; from < kept.length && attemptsLeft > 0; ) {
        const fewer = [...kept.slice(0, from), ...kept.slice(from + size)];
        const tried = planWith(fewer);
        if ((await failureOf(tried)) === failure) {
          kept = fewer;
          smallest = tried;
        } else from += size;
      }
    }
    return kept;
  }

  const before = describe(smallest);
  await remove(smallest.faults, (faults) => ({ ...smallest, faults: [...faults] }));
  await remove(smallest.requests, (requests) => ({ ...smallest, requests: [...requests] }));
  for (let number = 0; number < smallest.requests.length && attemptsLeft > 0; number++) {
    const withObjects = (objects: readonly Plan['requests'][number]['objects'][number][]) => ({
      ...smallest,
      requests: smallest.requests.map((request, index) =>
        index === number ? { ...request, objects: [...objects] } : request,
      ),
    });
    const { objects } = smallest.requests[number]!;
    if (objects.length > 1) await remove(objects, withObjects);
  }
  print(`shrunk from ${before} to ${describe(smallest)}`);
  return smallest;
}

function describe({ requests, faults }: Plan): string {
  const objects = requests.reduce((sum, request) => sum + request.objects.length, 0);
  return `${requests.length} requests, ${objects} objects and ${faults.length} faults`;
}

import { afterAll, describe, expect, test } from 'vitest';
import { describeFigure } from '../../tools/chaos/figure.ts';
import { Ground, type GroundOptions } from '../../tools/chaos/ground.ts';
import { describeResult } from '../../tools/chaos/report.ts';
import { runScenario } from '../../tools/chaos/run-scenario.ts';
import type { Scenario } from '../../tools/chaos/scenario.ts';
import { createDatabase } from '../setup/fixtures.ts';
import type { Backend } from '../setup/fleet.ts';

/**
 * Factor by which a time may exceed its limit in tests, which share the machine, unless the limit is fixed.
 */
const PATIENCE = 5;

/**
 * Runs the short forms of scenarios as tests on one shared fleet: scenarios that need more processes come
 * later, and the ones
 * that damage the fleet come last. A scenario that this machine cannot run is reported.
 */
export function shortForms(
  backend: Backend,
  scenarios: readonly Scenario[],
  shared: Omit<GroundOptions, 'createDatabase'> = {},
): void {
  describe(`queue on ${backend}`, () => {
    const ground = new Ground({ createDatabase, ...shared });
    afterAll(() => ground.leave());

    test.each(scenarios.map((scenario) => [scenario.number, scenario.fault, scenario] as const))(
      'fault %i: %s: I1 to I6 hold',
      { timeout: 240_000 },
      async (_number, _fault, scenario) => {
        expect(scenario.backends).toContain(backend);
        const result = await runScenario(scenario, {
          ...{ backend, ground, arena: { createDatabase } },
          short: true,
          seed: 1,
          say: () => {},
        });
        if (result.impossible) process.stderr.write(describeResult(result));
        expect(result.broken, describeResult(result)).toBeUndefined();
        expect(result.scene?.describeFindings() ?? []).toEqual([]);
        const missed = (result.scene?.figures ?? []).filter(({ passed, unit, measured, limit }) => {
          const patience = limit.firm ? 1 : PATIENCE;
          const late = ['s', 'ms'].includes(unit) && measured <= patience * (limit.atMost ?? 0);
          return !passed && !late;
        });
        expect(missed.map(describeFigure), result.scene?.notes.join('\n')).toEqual([]);
      },
    );
  });
}

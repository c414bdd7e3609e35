import { afterAll, describe, expect, test } from 'vitest';
import { describeFigure } from '../../tools/chaos/figure.ts';
import { Ground, type GroundOptions } from '../../tools/chaos/ground.ts';
import { describeResult } from '../../tools/chaos/report.ts';
import { runScenario } from '../../tools/chaos/run-scenario.ts';
import type { Scenario } from '../../tools/chaos/scenario.ts';
import { createDatabase } from '../setup/fixtures.ts';
import type { Backend } from '../setup/fleet.ts';

/** By so much a time may be longer than its limit here, unless that is firm: the tests share the machine. */
const PATIENCE = 5;

/**
 * The short forms of scenarios as tests, one after the other on shared ground: those that need more processes come
 * later, and what spoils a fleet comes last. A machine on which one is impossible says so.
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

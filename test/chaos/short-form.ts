import { expect, test } from 'vitest';
import { describeFigure } from '../../tools/chaos/figure.ts';
import { describeResult } from '../../tools/chaos/report.ts';
import { runScenario } from '../../tools/chaos/run-scenario.ts';
import type { Scenario } from '../../tools/chaos/scenario.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { type Backend, backends } from '../setup/fleet.ts';

/** By so much a time may be longer than its limit here, unless that is firm: the tests share the machine. */
const PATIENCE = 5;

/** The short form of a scenario as a test. A machine on which it is impossible says so. */
export function shortForm(scenario: Scenario, on: readonly Backend[] = backends): void {
  const queues = on.filter((backend) => scenario.backends.includes(backend));
  test.each(queues)(
    `fault ${scenario.number}: ${scenario.fault}: I1 to I6 hold; queue on %s`,
    { timeout: 240_000 },
    async (backend) => {
      const result = await runScenario(scenario, {
        backend,
        arena: { createDatabase },
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
}

import { loadavg } from 'node:os';
import type { Backend } from '../../test/setup/fleet.ts';
import { endLeftBehind } from '../../test/setup/left-behind.ts';
import type { Arena } from './arena.ts';
import type { Ground } from './ground.ts';
import type { ScenarioResult } from './report.ts';
import type { Scenario } from './scenario.ts';
import { Scene } from './scene.ts';

interface RunOptions {
  backend: Backend;
  arena: Pick<Arena, 'createDatabase'>;
  short: boolean;
  seed: number;
  /** Fleet and stores that short forms share. If absent, the scenario ends everything that it started. */
  ground?: Ground;
  say(what: string): void;
}

/** Runs a scenario on its own database or on shared stores, and ends everything that is not shared. */
export async function runScenario(scenario: Scenario, options: RunOptions): Promise<ScenarioResult> {
  const { backend, arena, ground, say } = options;
  const title = `${scenario.number} ${scenario.fault} (${backend})`;
  const impossible = scenario.impossible?.();
  if (impossible) return { title, impossible, passed: true, seconds: 0 };
  const from = Date.now();
  const drops: (() => Promise<void>)[] = [];
  const scene = new Scene({
    ...options,
    async createDatabase() {
      const { url, drop } = await arena.createDatabase();
      drops.push(drop);
      return { url };
    },
    say: (what) => say(`${title}: ${what}`),
  });
  let broken: string | undefined;
  try {
    await scenario.run(scene);
  } catch (error) {
    broken = (error as Error).stack ?? String(error);
  }
  const passed = broken === undefined && scene.passed;
  if (ground) {
    await scene.stop();
    if (!passed || scenario.spoils) await ground.leave();
  } else await endLeftBehind();
  for (const drop of drops) await drop().catch(() => {});
  return {
    title,
    scene,
    ...(broken && { broken }),
    passed,
    seconds: (Date.now() - from) / 1000,
    load: loadavg()[0]!,
  };
}

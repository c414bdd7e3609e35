import type { Reporter, TestModule } from 'vitest/node';

/** Number of files listed after each run. */
const NAMED = Number(process.env.SLOWEST ?? 10);

interface Cost {
  /** Duration of the import and the run of a file. */
  seconds: number;
  /**
   * Processor time of the test process and of ended processes that it started, without the shared servers of
   * the run.
   */
  processorSeconds: number;
}

function costOf(module: TestModule): Cost {
  const { collectDuration, setupDuration, prepareDuration, duration } = module.diagnostic();
  return {
    seconds: (collectDuration + setupDuration + prepareDuration + duration) / 1000,
    processorSeconds: module.meta().processorSeconds ?? 0,
  };
}

/** Returns the tier that the end of a file's name states. */
function tierOf({ project, relativeModuleId }: TestModule): string {
  if (project.name !== 'servers') return project.name;
  return relativeModuleId.endsWith('.processes.test.ts') ? 'processes' : 'stores';
}

/**
 * Reporter that prints, after a run of many files, the cost of each tier and the slowest files (`SLOWEST`,
 * default 10).
 */
export class SlowestFiles implements Reporter {
  onTestRunEnd(modules: ReadonlyArray<TestModule>): void {
    if (modules.length <= Math.min(NAMED, 10)) return;
    const tiers = new Map<string, Cost & { files: number }>();
    const files = modules.map((module) => ({
      ...costOf(module),
      file: module.relativeModuleId,
      tier: tierOf(module),
    }));
    for (const { tier, seconds, processorSeconds } of files) {
      const sum = tiers.get(tier) ?? { files: 0, seconds: 0, processorSeconds: 0 };
      tiers.set(tier, {
        files: sum.files + 1,
        seconds: sum.seconds + seconds,
        processorSeconds: sum.processorSeconds + processorSeconds,
      });
    }
    const lines = [...tiers].map(([tier, sum]) => `${columns(sum)}  ${tier}, ${sum.files} files`);
    const slowest = files.sort((a, b) => b.seconds - a.seconds).slice(0, NAMED);
    lines.push('', ...slowest.map((cost) => `${columns(cost)}  ${cost.file}`));
    process.stdout.write(
      `\n Seconds, and seconds of the processor, of each tier and of the slowest files\n${lines.join('\n')}\n`,
    );
  }
}

function columns({ seconds, processorSeconds }: Cost): string {
  return [seconds, processorSeconds].map((each) => each.toFixed(1).padStart(8)).join('');
}

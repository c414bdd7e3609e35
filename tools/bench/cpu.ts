import { readFileSync } from 'node:fs';

/** Linux counts CPU time in this many ticks a second. */
const TICKS = 100;

/** The reading that stands for the whole machine. */
const MACHINE = 'machine';

/** CPU seconds that each process and the whole machine have used so far, by name; empty where there is no /proc. */
export function readCpu(pids: Record<string, number>): Record<string, number> {
  const used: Record<string, number> = {};
  for (const [name, pid] of Object.entries(pids)) {
    const seconds = withChildren(pid);
    if (seconds !== undefined) used[name] = seconds;
  }
  const machine = ofMachine();
  if (machine !== undefined) used[MACHINE] = machine;
  return used;
}

function ofMachine(): number | undefined {
  try {
    const fields = readFileSync('/proc/stat', 'utf8')
      .split('\n')[0]!
      .trim()
      .split(/\s+/)
      .slice(1)
      .map(Number);
    const [user, nice, system, , , irq, softIrq] = fields;
    return (user! + nice! + system! + irq! + softIrq!) / TICKS;
  } catch {
    return undefined;
  }
}

/** A process, those that it has started and still run, and those that have ended. */
function withChildren(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name, in brackets, may hold anything; the fields are counted from behind it.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [user, system, childUser, childSystem] = fields.slice(11, 15).map(Number);
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean);
    const own = (user! + system! + childUser! + childSystem!) / TICKS;
    return children.reduce((sum, child) => sum + (withChildren(Number(child)) ?? 0), own);
  } catch {
    return undefined;
  }
}

/**
 * CPU that each process used between two readings, `generatorSeconds` of this process among them: in
 * microseconds per row, which says more than a rate when other programs run beside. `others_cores` says
 * how many cores those used.
 */
export function costBetween(
  before: Record<string, number>,
  after: Record<string, number>,
  generatorSeconds: number,
  { rows, seconds }: { rows: number; seconds: number },
): Record<string, number> {
  const used: Record<string, number> = { generator: generatorSeconds };
  for (const [name, value] of Object.entries(after)) used[name] = value - (before[name] ?? 0);
  const machine = used[MACHINE];
  delete used[MACHINE];
  const ours = Object.values(used).reduce((sum, value) => sum + value, 0);
  const cost = Object.entries(used).map(([name, value]) => [
    `cpu_us_${name}`,
    Math.round((value / rows) * 1e7) / 10,
  ]);
  if (machine !== undefined)
    cost.push(['others_cores', Math.round(((machine - ours) / seconds) * 100) / 100]);
  return Object.fromEntries(cost);
}

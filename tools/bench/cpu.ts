import { readFileSync } from 'node:fs';

/** Ticks per second in which Linux counts CPU time. */
const TICKS = 100;

/** Name of the reading for the whole machine. */
const MACHINE = 'machine';

/**
 * Returns the CPU seconds that each process and the whole machine have used so far, by name; empty without
 * /proc.
 */
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

/** Returns the CPU seconds of a process, its running children, and its children that have ended. */
function withChildren(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name, in parentheses, may contain any character, so count the fields after it.
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
 * Returns the CPU time of each process between two readings, including `generatorSeconds` of this process, in
 * microseconds per row. Unlike a rate, it is meaningful while other programs run. `others_cores` is the
 * number of cores that those programs used.
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

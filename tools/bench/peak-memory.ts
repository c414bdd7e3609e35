import { readFileSync, writeFileSync } from 'node:fs';

/** Lets the peak of each process begin anew; does nothing where that cannot be done. */
export function resetPeaks(pids: Record<string, number>): void {
  for (const pid of Object.values(pids)) {
    try {
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
    } catch {
      // Not Linux, or not ours: the peak is then that of its whole life, or is not told.
    }
  }
}

/** Most memory that each process has had in use since, in megabytes, as `rss_mb_<name>`. */
export function readPeaks(pids: Record<string, number>): Record<string, number> {
  const peaks: Record<string, number> = {};
  for (const [name, pid] of Object.entries(pids)) {
    try {
      const kilobytes = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
      if (kilobytes) peaks[`rss_mb_${name}`] = Math.round(Number(kilobytes) / 1024);
    } catch {
      // No /proc.
    }
  }
  return peaks;
}

import { readFileSync, writeFileSync } from 'node:fs';

/** Resets the peak memory of each process, if the system allows it. */
export function resetPeaks(pids: Record<string, number>): void {
  for (const pid of Object.values(pids)) {
    try {
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
    } catch {
      // Without /proc or permission, the peak covers the whole life of the process or is not reported.
    }
  }
}

/** Returns the peak memory of each process since the reset in megabytes, as `rss_mb_<name>`. */
export function readPeaks(pids: Record<string, number>): Record<string, number> {
  const peaks: Record<string, number> = {};
  for (const [name, pid] of Object.entries(pids)) {
    try {
      const kilobytes = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
      if (kilobytes) peaks[`rss_mb_${name}`] = Math.round(Number(kilobytes) / 1024);
    } catch {
      // The system has no /proc.
    }
  }
  return peaks;
}

import { grouped } from '../platform/format.ts';
import type { SeenProcess } from '../store/processes.ts';
import { SILENT_SECONDS } from '../store/processes.ts';

const MB = 1024 * 1024;
const GB = 1024 * MB;

/** Formats a value with its unit: bytes as MB, percent as %. */
export const amount = (value: number, unit: string): string =>
  unit === 'bytes'
    ? `${grouped(Math.round(value / MB))} MB`
    : `${grouped(Math.round(value * 10) / 10)} ${unit === 'percent' ? '%' : unit}`;

export const gigabytes = (bytes: number): string => `${(bytes / GB).toFixed(1)} GB`;

/** Formats a time, for example `12:03:20 UTC`. A time before today includes its date. */
export function clockTime(at: Date, now = new Date(Date.now())): string {
  const text = at.toISOString();
  const time = `${text.slice(11, 19)} UTC`;
  return text.slice(0, 10) === now.toISOString().slice(0, 10) ? time : `${text.slice(0, 10)} ${time}`;
}

/** Names a process: `worker w-7 (pid 42)`. */
export const nameOf = ({ name, host, pid }: Pick<SeenProcess, 'name' | 'host' | 'pid'>): string =>
  `${name} ${host} (pid ${pid})`;

/** Names lanes: `lane 3`, `lanes 0 to 3`, `lanes 0, 2 and 5`. */
export function lanesIn(numbers: number[]): string {
  const [first] = numbers;
  const last = numbers.at(-1);
  if (numbers.length === 1) return `lane ${first}`;
  if (numbers.length > 2 && last! - first! === numbers.length - 1) return `lanes ${first} to ${last}`;
  return `lanes ${numbers.slice(0, -1).join(', ')} and ${last}`;
}

/** Returns the processes whose last heartbeat is at most SILENT_SECONDS old. */
export const living = (processes: readonly SeenProcess[], ...names: SeenProcess['name'][]): SeenProcess[] =>
  processes.filter(({ name, silentSeconds }) => names.includes(name) && silentSeconds <= SILENT_SECONDS);

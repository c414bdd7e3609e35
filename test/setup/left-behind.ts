import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

type Stop = () => Promise<unknown> | unknown;

const leftBehind: Stop[] = [];

/** Notes how to end what was started; `endLeftBehind` does it. */
export function leaveBehind(stop: Stop): void {
  leftBehind.push(stop);
}

/** Ends what was started, the latest first, where it has not ended yet. */
export async function endLeftBehind(): Promise<void> {
  for (const stop of leftBehind.splice(0).reverse()) await stop();
}

/** A folder that is removed at the end. */
export function temporaryFolder(prefix = 'penstock-'): string {
  const dir = mkdtempSync(path.join(tmpdir(), prefix));
  leaveBehind(() => {
    if (existsSync(dir)) rmSync(dir, { recursive: true, force: true });
  });
  return dir;
}

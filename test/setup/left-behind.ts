import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

type Stop = () => Promise<unknown> | unknown;

const leftBehind: Stop[] = [];

/** Registers a function that ends a started resource; `endLeftBehind` calls it. */
export function leaveBehind(stop: Stop): void {
  leftBehind.push(stop);
}

/** Ends the registered resources that have not ended yet, the latest first. */
export async function endLeftBehind(): Promise<void> {
  for (const stop of leftBehind.splice(0).reverse()) await stop();
}

/** Creates a folder that is removed at the end. */
export function temporaryFolder(prefix = 'penstock-'): string {
  const dir = mkdtempSync(path.join(tmpdir(), prefix));
  leaveBehind(() => {
    if (existsSync(dir)) rmSync(dir, { recursive: true, force: true });
  });
  return dir;
}

import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/**
 * The key in `dataDir` that the credentials of integrations are encrypted with, made when there is none: whoever has
 * the folder has the data too.
 * @returns 32 bytes in base64
 */
export function keepIntegrationKey(dataDir: string): string {
  const file = keyFile(dataDir);
  mkdirSync(path.dirname(file), { recursive: true });
  try {
    writeFileSync(file, `${randomBytes(32).toString('base64')}\n`, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return readFileSync(file, 'utf8').trim();
}

/** The same; undefined when none was ever made. */
export function readIntegrationKey(dataDir: string): string | undefined {
  try {
    return readFileSync(keyFile(dataDir), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

function keyFile(dataDir: string): string {
  return path.join(path.resolve(dataDir), 'integration-key');
}

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

/** Reads the files that a section of a guide shows: code blocks whose first line is a comment with the file name. */
export function filesOf(guide: string, section: string): Record<string, string> {
  const text = readFileSync(path.join(packageRoot, 'docs', `${guide}.md`), 'utf8');
  const match = text.split(/^## /m).find((one) => one.startsWith(`${section}\n`));
  const blocks = (match ?? '').matchAll(/^```\w+\n(?:\/\/|#) (\S+\.\w+)\n(.*?)^```$/gms);
  return Object.fromEntries([...blocks].map(([, name, code]) => [name!, code!]));
}

/** Writes files into a folder. */
export function writeFiles(folder: string, files: Record<string, string>): void {
  for (const [name, code] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), code);
  }
}

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../../src/package-root.ts';

/** What sends statements that are none of the running service's, and why. */
const apart: Record<string, string> = {
  'migrate.ts': 'makes the tables, once a release, before anything runs',
  'in-transaction.ts': 'begins and ends transactions',
};

function sourcesIn(folder: string): { file: string; text: string }[] {
  return readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.startsWith('generated'))
    .map((name) => ({
      file: path.posix.join(folder, name),
      text: readFileSync(path.join(packageRoot, folder, name), 'utf8'),
    }));
}

const sources = [...sourcesIn('src'), ...sourcesIn('workers')];

/** Each `file:line` of the store that sends a statement. */
export function sitesOfStore(): string[] {
  return sources
    .filter(({ file }) => file.startsWith('src/store/'))
    .map(({ file, text }) => ({ file: file.slice('src/store/'.length), lines: text.split('\n') }))
    .filter(({ file }) => !(file in apart))
    .flatMap(({ file, lines }) =>
      lines.flatMap((line, index) => (/\.query[(<]/.test(line) ? [`${file}:${index + 1}`] : [])),
    )
    .sort();
}

export type Session = 'workers' | 'edge';

/** Whose sessions send the statements of a file of the store: the workers', those of the edge and the admin, or both. */
export function sessionsOf(file: string): Session[] {
  const importers = sources.filter(
    (source) => !source.file.startsWith('src/store/') && source.text.includes(`store/${file}'`),
  );
  const sessions = importers.map(
    (source): Session => (source.file.startsWith('workers/') ? 'workers' : 'edge'),
  );
  if (sessions.length === 0) throw new Error(`nothing outside the store uses ${file}`);
  return [...new Set(sessions)].sort();
}

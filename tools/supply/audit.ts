import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { packageRoot } from '../../src/platform/files.ts';
import {
  type Advisory,
  askDatabase,
  askSnapshot,
  readSnapshot,
  SNAPSHOT,
  takeSnapshot,
} from './advisories.ts';
import { productionPackages } from './packages.ts';

/** The response of a source. If the source did not respond, `reason` is set instead of `advisories`. */
interface Answer {
  source: string;
  advisories?: Advisory[];
  reason?: string;
}

/** Runs `npm audit`, which requests the advisories from the configured registry. */
function askRegistry(): Answer {
  const source = 'npm audit';
  const { stdout } = spawnSync('npm', ['audit', '--omit=dev', '--json'], {
    cwd: packageRoot,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  let report: Record<string, unknown>;
  try {
    report = JSON.parse(stdout);
  } catch {
    return { source, reason: 'no report' };
  }
  if (!report.vulnerabilities)
    return { source, reason: `the registry answers ${report.statusCode ?? 'with an error'}` };
  type Via = string | { name: string; title: string; url: string };
  const vulnerabilities = Object.values(report.vulnerabilities as Record<string, { via: Via[] }>);
  const vias = vulnerabilities.flatMap(({ via }) => via).filter((via) => typeof via !== 'string');
  return {
    source,
    advisories: vias.map(({ name, title, url }) => ({ package: name, ids: [path.basename(url)], title })),
  };
}

const options = {
  database: { type: 'string' },
  offline: { type: 'boolean' },
  'take-snapshot': { type: 'string' },
} as const;

/**
 * Prints the advisories of each source.
 * @returns the exit status: 0; 1 if docs/evidence/dependencies.md does not explain an advisory; 2 if no source responded
 */
function main(): number {
  const { values } = parseArgs({ options });
  const packages = productionPackages();
  const date = values['take-snapshot'];
  if (date !== undefined) {
    if (!values.database || !/^\d{4}-\d\d-\d\d$/.test(date))
      throw new Error('a snapshot is taken by --database <folder> --take-snapshot <its date as YYYY-MM-DD>');
    writeFileSync(SNAPSHOT, `${JSON.stringify(takeSnapshot(values.database, packages, date), null, 1)}\n`);
  }
  const answers = values.offline ? [] : [askRegistry()];
  if (values.offline) {
    const snapshot = readSnapshot();
    const { advisories, unknown } = askSnapshot(snapshot, packages);
    const source = `${snapshot.source} as of ${snapshot.date}`;
    if (unknown.length === 0) answers.push({ source, advisories });
    else answers.push({ source, reason: `it was not asked about ${unknown.join(', ')}` });
  }
  if (values.database)
    answers.push({ source: values.database, advisories: askDatabase(values.database, packages) });
  const explained = readFileSync(path.join(packageRoot, 'docs/evidence/dependencies.md'), 'utf8');
  let open = 0;
  for (const { source, advisories, reason } of answers) {
    if (!advisories) {
      process.stdout.write(`${source}: no answer (${reason})\n`);
      continue;
    }
    process.stdout.write(`${source}: ${advisories.length} advisories for ${packages.length} packages\n`);
    for (const { package: name, ids, title } of advisories) {
      const isExplained = ids.some((id) => explained.includes(id));
      if (!isExplained) open++;
      process.stdout.write(
        `  ${name}: ${ids.join(', ')}: ${title}${isExplained ? ' (see docs/evidence/dependencies.md)' : ''}\n`,
      );
    }
  }
  if (answers.some(({ advisories }) => advisories)) return open > 0 ? 1 : 0;
  process.stdout.write(
    'No source of advisories answered. docs/evidence/dependencies.md lists what was reviewed, and when. To check a copy\n' +
      "of GitLab's advisory database, run npm run audit -- --database <folder>. To check generated/advisories.json, run\n" +
      'npm run audit -- --offline\n',
  );
  return 2;
}

if (import.meta.filename === process.argv[1]) process.exitCode = main();

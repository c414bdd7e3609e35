import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { satisfies } from 'semver';
import { parse } from 'yaml';
import { packageRoot } from '../../src/platform/package-root.ts';
import { type ProductionPackage, productionPackages } from './packages.ts';

/** An advisory that concerns a package of production. */
export interface Advisory {
  package: string;
  /** As sources call it: CVE, GHSA. */
  ids: string[];
  title: string;
}

/** What a source says; `advisories` is undefined where it does not answer. */
interface Answer {
  source: string;
  advisories?: Advisory[];
  reason?: string;
}

/** Asks the registry in use, by npm. */
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
  const found = Object.values(report.vulnerabilities as Record<string, { via: Via[] }>);
  const vias = found.flatMap(({ via }) => via).filter((via) => typeof via !== 'string');
  return {
    source,
    advisories: vias.map(({ name, title, url }) => ({ package: name, ids: [path.basename(url)], title })),
  };
}

/**
 * Looks into a copy of a database on this machine: a folder `npm/<package>/<id>.yml` as GitLab's advisory database has it.
 * @throws {Error} when there is no such folder
 */
export function askDatabase(folder: string, packages: ProductionPackage[]): Advisory[] {
  const npm = path.join(folder, 'npm');
  if (!existsSync(npm)) throw new Error(`${npm} is not there: name a copy of GitLab's advisory database`);
  return packages.flatMap(({ name, version }) => {
    const of = path.join(npm, name);
    if (!existsSync(of)) return [];
    return readdirSync(of)
      .filter((file) => file.endsWith('.yml'))
      .map((file) => parse(readFileSync(path.join(of, file), 'utf8')))
      .filter(({ affected_range: range }) => satisfies(version, range, { includePrerelease: true }))
      .map(({ identifiers, title }) => ({ package: `${name} ${version}`, ids: identifiers, title }));
  });
}

function main(): number {
  const { values } = parseArgs({ options: { database: { type: 'string' } } });
  const packages = productionPackages();
  const answers = [askRegistry()];
  if (values.database)
    answers.push({ source: values.database, advisories: askDatabase(values.database, packages) });
  const explained = readFileSync(path.join(packageRoot, 'SECURITY.md'), 'utf8');
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
        `  ${name}: ${ids.join(', ')}: ${title}${isExplained ? ' (see SECURITY.md)' : ''}\n`,
      );
    }
  }
  if (answers.some(({ advisories }) => advisories)) return open > 0 ? 1 : 0;
  process.stdout.write(
    'No source of advisories answers: nothing is known of today. SECURITY.md says what was reviewed, and when; a copy of\n' +
      "GitLab's advisory database is looked into by npm run audit -- --database <folder>\n",
  );
  return 2;
}

if (import.meta.filename === process.argv[1]) process.exitCode = main();

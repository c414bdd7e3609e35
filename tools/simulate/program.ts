import { createRequire } from 'node:module';
import path from 'node:path';
import { compileFunction } from 'node:vm';
import { type Plugin, rolldown } from 'rolldown';
import { packageRoot } from '../../src/platform/files.ts';
import { compile } from '../../src/schemas/compile.ts';
import { environmentOf, GLOBAL_NAMES } from './globals.ts';
import type { Mutation } from './mutations.ts';
import type * as Program from './program/main.ts';
import type { Host } from './world.ts';

/** Exports of the bundle that a simulated process evaluates. */
export type ProgramExports = typeof Program;

const require = createRequire(import.meta.url);

const ENTRY = path.join(packageRoot, 'tools/simulate/program/main.ts');

/** Modules with SQL, and the modules in memory that replace them in the bundle. */
const IN_MEMORY: Readonly<Record<string, string>> = {
  'src/store/ledger.ts': 'ledger.ts',
  'src/store/transactions.ts': 'transactions.ts',
  'src/store/fences.ts': 'fences.ts',
  'src/store/job-attempts.ts': 'job-attempts.ts',
  'src/store/distributed.ts': 'distributed.ts',
  'src/store/failed-objects.ts': 'failed-objects.ts',
  'src/store/counters.ts': 'counters.ts',
  'workers/batch/load-profiles.ts': 'load-profiles.ts',
  'workers/batch/load-states.ts': 'load-states.ts',
  'workers/batch/fold/fold.ts': 'fold.ts',
  'workers/batch/write.ts': 'write.ts',
};

/** A module that all simulated processes share. It has no state, and compiling schemas takes long. */
const SHARED = 'src/schemas/compile.ts';

/**
 * The code of Penstock, bundled for simulated processes. Each process runs the bundle once and so has its own modules,
 * with the globals of the simulation.
 */
export interface SimulatedProgram {
  /** Starts a process: evaluates the bundle. */
  load(host: Host): ProgramExports;
}

/**
 * Bundles the source.
 *
 * @param mutations faults to put into the source
 * @throws when the text of a mutation does not occur exactly once
 */
export async function bundleProgram(mutations: readonly Mutation[] = []): Promise<SimulatedProgram> {
  const applied = new Set<Mutation>();
  const plugin: Plugin = {
    name: 'simulation',
    resolveId(source, importer) {
      if (!source.startsWith('.') || !importer) return undefined;
      const file = path.resolve(path.dirname(importer), source);
      const name = path.relative(packageRoot, file);
      if (name === SHARED) return { id: SHARED, external: true };
      const inMemory = IN_MEMORY[name];
      const isOwn = importer.includes(`${path.sep}program${path.sep}store${path.sep}`);
      if (inMemory && !isOwn) return path.join(packageRoot, 'tools/simulate/program/store', inMemory);
      return undefined;
    },
    transform(code, id) {
      const name = path.relative(packageRoot, id);
      let changed = code;
      for (const mutation of mutations) {
        for (const { file, find, replace } of mutation.edits) {
          if (file !== name) continue;
          if (changed.split(find).length !== 2)
            throw new Error(`mutation ${mutation.name}: the text to replace occurs not once in ${file}`);
          changed = changed.replace(find, () => replace);
          applied.add(mutation);
        }
      }
      return changed === code ? undefined : { code: changed };
    },
  };
  const bundle = await rolldown({
    input: ENTRY,
    platform: 'node',
    external: (id) => !id.startsWith('.') && !path.isAbsolute(id),
    shimMissingExports: true,
    plugins: [plugin],
    logLevel: 'silent',
  });
  const { output } = await bundle.generate({ format: 'cjs', codeSplitting: false });
  await bundle.close();
  for (const mutation of mutations)
    if (!applied.has(mutation))
      throw new Error(`mutation ${mutation.name}: its file is not part of the program`);
  const [chunk] = output;
  const packages = new Map<string, unknown>();
  for (const name of chunk.imports)
    if (name !== SHARED && !isBuiltin(name)) packages.set(name, await import(name));
  const run = compileFunction(
    chunk.code,
    ['exports', 'require', 'module', '__filename', '__dirname', ...GLOBAL_NAMES],
    {
      filename: path.join(packageRoot, 'simulated-process.cjs'),
    },
  );
  const shared = { compile: createSharedCompile() };
  return {
    load(host) {
      const { globals, modules } = environmentOf(host);
      const module = { exports: {} };
      const requireForHost = (name: string): unknown => {
        if (name === SHARED) return shared;
        const plain = name.replace(/^node:/, '');
        return modules[plain] ?? packages.get(name) ?? require(name);
      };
      const names = GLOBAL_NAMES.map((name) => globals[name]);
      const file = path.join(packageRoot, 'simulated-process.cjs');
      run(module.exports, requireForHost, module, file, packageRoot, ...names);
      return module.exports as ProgramExports;
    },
  };
}

const isBuiltin = (name: string) => name.startsWith('node:');

/** Compiles each schema once for all processes. */
function createSharedCompile(): typeof compile {
  const compiled = new Map<string, ReturnType<typeof compile>>();
  return ((schema: object) => {
    const text = JSON.stringify(schema);
    const known = compiled.get(text) ?? compile(schema);
    compiled.set(text, known);
    return known;
  }) as typeof compile;
}

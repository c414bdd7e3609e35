import { createRequire } from 'node:module';
import path from 'node:path';
import { compileFunction } from 'node:vm';
import { type Plugin, rolldown } from 'rolldown';
import { packageRoot } from '../../src/platform/files.ts';
import { compile } from '../../src/schemas/compile.ts';
import { environmentOf, GLOBAL_NAMES } from './globals.ts';
import type { Mutation } from './mutations.ts';
import type * as Program from './program/main.ts';
import type * as PostgresProgram from './program/postgres-main.ts';
import type { Host } from './world.ts';

/** Exports of the bundle that a simulated process evaluates. */
export type ProgramExports = typeof Program;
export type PostgresExports = typeof PostgresProgram;

/** The store of the tables of a simulation: memory, or a real Postgres. */
export type StoreKind = 'memory' | 'postgres';

const require = createRequire(import.meta.url);

const PROGRAM = path.join(packageRoot, 'tools/simulate/program');

interface ProgramParts {
  entry: string;
  /** Modules of Penstock, and the modules of `program` that replace them in the bundle. */
  replaced: Readonly<Record<string, string>>;
  /** Packages that use timers or the time. They become part of the bundle, and so use the simulated ones. */
  bundled: readonly string[];
}

const PARTS: Readonly<Record<StoreKind, ProgramParts>> = {
  // Modules with SQL are replaced by modules in memory.
  memory: {
    entry: 'main.ts',
    replaced: {
      'src/store/ledger.ts': 'store/ledger.ts',
      'src/store/transactions.ts': 'store/transactions.ts',
      'src/store/fences.ts': 'store/fences.ts',
      'src/store/job-attempts.ts': 'store/job-attempts.ts',
      'src/store/distributed.ts': 'store/distributed.ts',
      'src/store/failed-objects.ts': 'store/failed-objects.ts',
      'src/store/counters.ts': 'store/counters.ts',
      'workers/batch/load-profiles.ts': 'store/load-profiles.ts',
      'workers/batch/load-states.ts': 'store/load-states.ts',
      'workers/batch/fold/fold.ts': 'store/fold.ts',
      'workers/batch/write.ts': 'store/write.ts',
    },
    bundled: [],
  },
  // Modules are wrapped by modules that record the objects of each transaction.
  postgres: {
    entry: 'postgres-main.ts',
    replaced: {
      'src/store/failed-objects.ts': 'postgres/failed-objects.ts',
      'workers/batch/load-profiles.ts': 'postgres/load-profiles.ts',
      'workers/batch/fold/fold.ts': 'postgres/fold.ts',
      'workers/batch/write.ts': 'postgres/write.ts',
    },
    bundled: ['lru-cache'],
  },
};

/** A module that all simulated processes share, because it has no state and compiling schemas takes long. */
const SHARED = 'src/schemas/compile.ts';

/**
 * The code of Penstock, bundled for simulated processes. Each process runs the bundle once. So it has its own modules, which
 * use the globals of the simulation.
 */
export interface SimulatedProgram {
  store: StoreKind;
  /** Starts a process: evaluates the bundle. */
  load(host: Host): ProgramExports;
}

/**
 * Bundles the source.
 *
 * @param mutations faults to put into the source
 * @throws {Error} if the text of a mutation does not occur exactly once
 */
export async function bundleProgram(
  mutations: readonly Mutation[] = [],
  store: StoreKind = 'memory',
): Promise<SimulatedProgram> {
  const { entry, replaced, bundled } = PARTS[store];
  const applied = new Set<Mutation>();
  const plugin: Plugin = {
    name: 'simulation',
    resolveId(source, importer) {
      if (!source.startsWith('.') || !importer) return undefined;
      const file = path.resolve(path.dirname(importer), source);
      const name = path.relative(packageRoot, file);
      if (name === SHARED) return { id: SHARED, external: true };
      const replacement = replaced[name];
      if (replacement && !importer.startsWith(PROGRAM)) return path.join(PROGRAM, replacement);
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
    input: path.join(PROGRAM, entry),
    platform: 'node',
    external: (id) => !id.startsWith('.') && !path.isAbsolute(id) && !bundled.includes(id),
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
    store,
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
    const validator = compiled.get(text) ?? compile(schema);
    compiled.set(text, validator);
    return validator;
  }) as typeof compile;
}

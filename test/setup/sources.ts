import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

/** A file of this repository, for tests of its architecture. */
export interface Source {
  file: string;
  text: string;
  /** Imported files of this repository, and imported packages by name. */
  imports: string[];
  /** Imports other than types. */
  values: string[];
  /** Imports that are loaded with the file. */
  loads: string[];
  /** Dynamic imports. */
  opens: string[];
}

/** Checks whether a file belongs to the product. */
export const isOurs = (name: string) => /^(?:src|workers)\//.test(name);

const LOADED = /^(?:(?:import|export)\b[^'";]*?\bfrom\s+|import\s+)'([^']+)'/gm;

/** Matches imports of modules and of types. */
const IMPORTED = /\bimport\(\s*'([^']+)'/g;
const OPENED = /(?<!\btypeof )\bimport\(\s*'([^']+)'/g;

/** All TypeScript files except generated ones. */
export const sources = ['src', 'workers', 'tools', 'test'].flatMap(readSources);

function readSources(folder: string): Source[] {
  return readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => path.posix.join(folder, name.split(path.sep).join('/')))
    .filter((file) => file.endsWith('.ts') && !/^src\/generated\/|\/node_modules\//.test(file))
    .map((file) => {
      const text = readFileSync(path.join(packageRoot, file), 'utf8');
      const loads = namesIn(file, withoutTypes(text), LOADED);
      return {
        ...{ file, text, loads, opens: namesIn(file, text, OPENED) },
        imports: [...namesIn(file, text, LOADED), ...namesIn(file, text, IMPORTED)],
        values: [...loads, ...namesIn(file, text, IMPORTED)],
      };
    });
}

function namesIn(file: string, text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, specifier]) =>
    specifier!.startsWith('.') ? path.posix.join(path.posix.dirname(file), specifier!) : specifier!,
  );
}

function withoutTypes(text: string): string {
  return text.replace(/^(?:import|export) type\b[^;]*;|^import \{(?:\s*type \w+,?)+\s*\}[^;]*;/gm, '');
}

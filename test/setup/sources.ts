import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/package-root.ts';

/** A file of this repository, as the tests of its architecture read it. */
export interface Source {
  file: string;
  text: string;
  /** Files of this repository, and packages by name. */
  imports: string[];
  /** Those of them that are not types alone. */
  values: string[];
}

/** Whether it is a file of the product. */
export const isOurs = (name: string) => /^(?:src|workers)\//.test(name);

/** All of TypeScript but what is generated. */
export const sources = ['src', 'workers', 'tools', 'test'].flatMap(readSources);

function readSources(folder: string): Source[] {
  return readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => path.posix.join(folder, name.split(path.sep).join('/')))
    .filter((file) => file.endsWith('.ts') && !/^src\/generated\/|\/node_modules\//.test(file))
    .map((file) => {
      const text = readFileSync(path.join(packageRoot, file), 'utf8');
      return { file, text, imports: importsOf(file, text), values: importsOf(file, withoutTypes(text)) };
    });
}

function importsOf(file: string, text: string): string[] {
  const specifiers = text.matchAll(
    /(?:^(?:import|export)\b[^'";]*?\bfrom\s+|^import\s+|\bimport\(\s*)'([^']+)'/gm,
  );
  return [...specifiers].map(([, specifier]) =>
    specifier!.startsWith('.') ? path.posix.join(path.posix.dirname(file), specifier!) : specifier!,
  );
}

function withoutTypes(text: string): string {
  return text.replace(/^(?:import|export) type\b[^;]*;|^import \{(?:\s*type \w+,?)+\s*\}[^;]*;/gm, '');
}

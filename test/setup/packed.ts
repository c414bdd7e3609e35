import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

interface Manifest {
  bin: Record<string, string>;
  dependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
}

export interface Packed {
  /** Path of the tarball. */
  tarball: string;
  /** Bytes of the tarball, and of its files. */
  size: number;
  unpackedSize: number;
  /** Paths of the files in the package, in order. */
  files: string[];
}

/** Runs `npm pack` in a folder. */
export function pack(folder: string, to: string, ...options: string[]): Packed {
  const words = ['pack', '--json', '--pack-destination', to, ...options];
  const stdout = execFileSync('npm', words, {
    cwd: folder,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [{ filename, size, unpackedSize, files }] = JSON.parse(stdout);
  return {
    tarball: path.join(to, filename),
    size,
    unpackedSize,
    files: files.map((file: { path: string }) => file.path).sort(),
  };
}

/**
 * Installs the tarball into an empty folder without npm, which takes a minute on a busy machine even from its
 * cache: unpacks
 * the files, links the commands, and links the packages of `dependencies` to this clone's packages. A package
 * that
 * package.json does not list is missing, as it is after npm install.
 */
export function installPacked(tarball: string, folder: string, { optional }: { optional: boolean }): void {
  const modules = path.join(folder, 'node_modules');
  const own = path.join(modules, 'penstock');
  mkdirSync(path.join(modules, '.bin'), { recursive: true });
  mkdirSync(own);
  execFileSync('tar', ['-xzf', tarball, '-C', own, '--strip-components=1']);
  const manifest: Manifest = JSON.parse(readFileSync(path.join(own, 'package.json'), 'utf8'));
  for (const [name, file] of Object.entries(manifest.bin))
    symlinkSync(path.join('../penstock', file), path.join(modules, '.bin', name));
  for (const name of Object.keys({
    ...manifest.dependencies,
    ...(optional && manifest.optionalDependencies),
  })) {
    mkdirSync(path.dirname(path.join(modules, name)), { recursive: true });
    symlinkSync(path.join(packageRoot, 'node_modules', name), path.join(modules, name));
  }
}

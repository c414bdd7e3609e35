import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

/** A file that kubectl or helm creates from sources in deploy/. */
export interface Rendering {
  /** Path of the created file, relative to deploy/. */
  file: string;
  /** Folders with its sources, relative to deploy/. */
  sources: string[];
  command: [tool: string, ...args: string[]];
}

const kustomize = (overlay: string): Rendering => ({
  file: `rendered/kustomize-${overlay}.yaml`,
  sources: ['kubernetes/base', `kubernetes/overlays/${overlay}`],
  command: ['kubectl', 'kustomize', `kubernetes/overlays/${overlay}`],
});

const helm = (values: string): Rendering => ({
  file: `rendered/helm-${values}.yaml`,
  sources: ['helm/penstock'],
  command: [
    ...(['helm', 'template', 'penstock', 'helm/penstock', '--namespace', 'penstock'] as const),
    // Without a cluster, helm would assume a version that depends on its build.
    ...['--kube-version', '1.30.0', '--values', `helm/penstock/values-${values}.yaml`],
  ],
});

export const renderings = ['small', 'production'].flatMap((size) => [kustomize(size), helm(size)]);

export const deploy = path.join(packageRoot, 'deploy');

/** Returns the SHA-256 of the names and contents of the sources. Each rendering contains the digest of its sources. */
export function digestOf({ sources }: Pick<Rendering, 'sources'>): string {
  const hash = createHash('sha256');
  for (const source of sources) {
    const files = readdirSync(path.join(deploy, source), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => path.relative(deploy, path.join(entry.parentPath, entry.name)))
      .sort();
    for (const file of files) {
      const text = readFileSync(path.join(deploy, file));
      hash.update(`${file}\n${text.length}\n`).update(text);
    }
  }
  return hash.digest('hex');
}

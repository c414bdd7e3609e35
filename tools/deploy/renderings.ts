import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

/** What a tool makes of the sources of deploy/. */
export interface Rendering {
  /** Under deploy/. */
  file: string;
  /** Folders under deploy/ that it is made of. */
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
    // It asks no cluster, and its own guess depends on how it was built.
    ...['--kube-version', '1.30.0', '--values', `helm/penstock/values-${values}.yaml`],
  ],
});

export const renderings = ['small', 'production'].flatMap((one) => [kustomize(one), helm(one)]);

export const deploy = path.join(packageRoot, 'deploy');

/** Of the sources, their names and contents: a rendering names the one that it was made of. */
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

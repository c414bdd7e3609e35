import { execFileSync } from 'node:child_process';
import { packageRoot } from '../../src/platform/files.ts';

interface Component {
  'bom-ref': string;
  name: string;
  properties?: { name: string; value: string }[];
}

interface Bom {
  metadata: { component: Component };
  components: Component[];
  dependencies: { ref: string; dependsOn: string[] }[];
}

/**
 * The software bill of materials of production, CycloneDX 1.5, from the lock file alone.
 *
 * `npm sbom --omit dev` leaves out what development packages need as well (ajv, commander). So it is asked for all, and
 * what is for development alone is taken away here. npm calls the whole by the name of the folder.
 */
export function billOfMaterials(): Bom {
  const words = ['sbom', '--sbom-format', 'cyclonedx', '--sbom-type', 'application', '--package-lock-only'];
  const text = execFileSync('npm', words, {
    cwd: packageRoot,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const bom = JSON.parse(text) as Bom;
  bom.metadata.component.name = 'penstock';
  bom.components = bom.components.filter(({ properties = [] }) => !properties.some(isForDevelopment));
  const kept = new Set([...bom.components, bom.metadata.component].map((one) => one['bom-ref']));
  bom.dependencies = bom.dependencies
    .filter(({ ref }) => kept.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((other) => kept.has(other)) }));
  return bom;
}

function isForDevelopment({ name, value }: { name: string; value: string }): boolean {
  return name === 'cdx:npm:package:development' && value === 'true';
}

if (import.meta.filename === process.argv[1])
  process.stdout.write(`${JSON.stringify(billOfMaterials(), null, 2)}\n`);

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
 * Returns the software bill of materials of the production packages (CycloneDX 1.5). It reads only the lock file.
 *
 * `npm sbom --omit dev` also omits production packages that development packages depend on, for example ajv and commander.
 * So this function requests all packages, and removes those that are used only in development. It also sets the name,
 * because npm uses the name of the folder.
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
  const kept = new Set([...bom.components, bom.metadata.component].map((component) => component['bom-ref']));
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

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { readConfig, settings } from '../../src/platform/config.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { parseProcfile } from '../../src/start/processes.ts';
import { digestOf, renderings } from '../../tools/deploy/renderings.ts';
import { exported } from '../../tools/generate/registries.ts';
import { faultsOf, type Manifest } from './schemas.ts';

// biome-ignore lint/suspicious/noExplicitAny: the schema of each kind checks its members.
type Any = any;

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');
const procfile = parseProcfile(read('Procfile'));
const objectsOf = (text: string): Manifest[] =>
  parseAllDocuments(text).flatMap((document) => (document.contents ? [document.toJS()] : []));
const nameOf = ({ kind, metadata }: Manifest) => `${kind} ${metadata.name}`;
const renderedBy = (file: string) => objectsOf(read(`deploy/${file}`));

describe.each(renderings)('deploy/$file', ({ file, sources }) => {
  const objects = renderedBy(file);
  const of = (kind: string) => objects.filter((one) => one.kind === kind) as Any[];
  const podsOf = () =>
    [...of('Deployment'), ...of('Job')].map((one) => [nameOf(one), one.spec.template.spec]);
  const config: Record<string, string> = of('ConfigMap')[0].data;
  const componentOf = (one: Any) => one.metadata.labels['app.kubernetes.io/component'];

  test('is current: npm run deploy:render', () => {
    expect(read(`deploy/${file}`)).toContain(`# of sources with sha256 ${digestOf({ sources })}\n`);
  });

  test('is valid under the schemas of Kubernetes, KEDA and the Prometheus operator', async () => {
    expect(objects.length).toBeGreaterThan(10);
    for (const one of objects) expect([nameOf(one), await faultsOf(one)]).toEqual([nameOf(one), []]);
    expect(new Set(objects.map(nameOf)).size).toBe(objects.length);
    for (const { metadata } of objects) expect(metadata.namespace).toBe('penstock');
  });

  test('runs each line of the Procfile by its command, on the port of its setting', () => {
    const ports = { web: 'PORT', worker: 'WORKER_PORT', sync: 'SYNC_PORT', board: 'BOARD_PORT' } as const;
    for (const { name, nodeArgs, file: program } of procfile) {
      const kind = name === 'release' ? 'Job' : 'Deployment';
      const [container] = of(kind).find((one) => componentOf(one) === name).spec.template.spec.containers;
      expect(container.command).toEqual(['node', ...nodeArgs, program]);
      if (name in ports)
        expect(container.ports).toEqual([
          { name: 'http', containerPort: settings[ports[name as keyof typeof ports]].default },
        ]);
    }
    expect([...of('Deployment'), ...of('Job')]).toHaveLength(procfile.length);
  });

  test('sets only known settings, each to a valid value, and secrets only from the Secret', () => {
    expect(readConfig(config)).toBeTruthy();
    for (const [, { containers }] of podsOf()) {
      for (const { name, value, valueFrom } of containers[0].env) {
        expect(Object.keys(settings)).toContain(name);
        if (value === undefined)
          expect(valueFrom.secretKeyRef).toMatchObject({ name: 'penstock', key: name });
      }
      expect(containers[0].envFrom).toEqual([{ configMapRef: { name: of('ConfigMap')[0].metadata.name } }]);
    }
    const secret = /PASSWORD|TOKEN|SECRET|_KEY$|_URL$/;
    expect(Object.keys(config).filter((name) => secret.test(name))).toEqual([]);
    expect(of('Secret')).toEqual([]);
  });

  test('gives each process the secret settings that it reads, from the Secret', () => {
    const isSecret = (name: string) =>
      /PASSWORD|TOKEN$|SECRET|_KEY$|_KEY_ID$|^DATABASE_.*URL$|^REDIS_URL$/.test(name);
    for (const one of [...of('Deployment'), ...of('Job')]) {
      // Every process, also release, chooses the queue by REDIS_URL.
      const read = Object.entries(settings)
        .filter(
          ([name, { readBy }]) =>
            name === 'REDIS_URL' || (readBy as readonly string[]).includes(componentOf(one)),
        )
        .flatMap(([name]) => (isSecret(name) ? [name] : []));
      const [{ env }] = one.spec.template.spec.containers;
      const given = env.filter(({ valueFrom }: Any) => valueFrom).map(({ name }: Any) => name);
      expect([nameOf(one), given.sort()]).toEqual([nameOf(one), read.sort()]);
    }
  });

  test('runs pods as non-root, read-only, unprivileged, without a token, and with limits', () => {
    for (const [name, pod] of podsOf()) {
      expect(pod, name).toMatchObject({
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      });
      const [{ securityContext, resources }, ...others] = pod.containers;
      expect(others, name).toEqual([]);
      expect(securityContext, name).toEqual({
        ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
        capabilities: { drop: ['ALL'] },
      });
      expect(resources, name).toEqual({
        requests: expect.objectContaining({ cpu: expect.any(String), memory: expect.any(String) }),
        limits: { memory: expect.any(String) },
      });
      expect(pod.volumes, name).toEqual([{ name: 'tmp', emptyDir: { sizeLimit: expect.anything() } }]);
    }
  });

  test('checks each process by /healthz and /readyz, and gives it time to stop', () => {
    const { SHUTDOWN_DELAY_MS, SHUTDOWN_TIMEOUT_MS } = readConfig(config);
    for (const { spec } of of('Deployment')) {
      const pod = spec.template.spec;
      const [container] = pod.containers;
      expect(container.livenessProbe.httpGet).toEqual({ path: '/healthz', port: 'http' });
      expect(container.readinessProbe.httpGet).toEqual({ path: '/readyz', port: 'http' });
      expect(pod.terminationGracePeriodSeconds * 1000).toBeGreaterThan(
        SHUTDOWN_DELAY_MS + SHUTDOWN_TIMEOUT_MS,
      );
      // A balancer that follows /readyz as the kubelet does has seen the change before the process closes.
      const { periodSeconds, failureThreshold } = container.readinessProbe;
      expect(SHUTDOWN_DELAY_MS).toBeGreaterThanOrEqual(periodSeconds * failureThreshold * 1000);
    }
  });

  test('every selector finds the pods of its component', () => {
    const labels = of('Deployment').map((one) => one.spec.template.metadata.labels);
    const finds = (wanted: Record<string, string>) =>
      labels.filter((all) => Object.entries(wanted).every(([name, value]) => all[name] === value)).length;
    for (const { spec } of of('Deployment')) expect(finds(spec.selector.matchLabels)).toBe(1);
    for (const { spec } of of('Service')) expect(finds(spec.selector)).toBe(1);
    for (const { spec } of of('PodDisruptionBudget')) expect(finds(spec.selector.matchLabels)).toBe(1);
    for (const { spec } of of('PodMonitor')) expect(finds(spec.selector.matchLabels)).toBe(4);
    const policies = of('NetworkPolicy').map(({ spec }) => finds(spec.podSelector.matchLabels));
    expect(policies.sort()).toEqual([1, 1, 1, 1, 4]);
    const targets = [...of('ScaledObject'), ...of('HorizontalPodAutoscaler')].map(
      (one) => one.spec.scaleTargetRef.name,
    );
    for (const name of targets) {
      const target = of('Deployment').find((one) => one.metadata.name === name);
      // A number here would be reset by each apply.
      expect(target.spec.replicas).toBeUndefined();
    }
  });

  test('gives sync and board the key of credentials and the same rule for outgoing addresses', () => {
    const deployments = of('Deployment').filter((one) =>
      one.spec.template.spec.containers[0].env.some(({ name }: Any) => name === 'INTEGRATION_KEY'),
    );
    expect(deployments.map(componentOf).sort()).toEqual(['board', 'sync']);
    const rules = of('NetworkPolicy').filter(({ spec }) => spec.policyTypes.includes('Egress'));
    expect(rules.map(componentOf).sort()).toEqual(['board', 'sync']);
    expect(rules[0].spec.egress).toEqual(rules[1].spec.egress);
  });

  test('has space in /tmp for the files that syncs may write', () => {
    const sync = of('Deployment').find((one) => componentOf(one) === 'sync');
    const { SYNC_CONCURRENCY, SYNC_SCRATCH_BYTES } = readConfig(config);
    const [, gibibytes] = /^(\d+)Gi$/.exec(sync.spec.template.spec.volumes[0].emptyDir.sizeLimit)!;
    expect(Number(gibibytes) * 2 ** 30).toBeGreaterThan(2 * SYNC_CONCURRENCY * SYNC_SCRATCH_BYTES);
  });

  if (file.includes('production'))
    test('scales workers by the age of the oldest envelope, up to the number of all lanes', () => {
      const [{ spec }] = of('ScaledObject');
      const { LANES, SHARDS } = readConfig(config);
      expect(config).toHaveProperty('SHARDS');
      expect(spec.maxReplicaCount).toBe(LANES * SHARDS);
      const { query } = spec.triggers[0].metadata;
      const names = [...query.matchAll(/penstock_\w+/g)].map(([name]) => name);
      expect(names).toEqual(['penstock_queue_oldest_seconds']);
      expect(exported().map(({ name }) => name)).toContain(names[0]);
      expect(query).toContain(`namespace="${of('Deployment')[0].metadata.namespace}"`);
      const endpoint = of('PodMonitor')[0].spec.podMetricsEndpoints[0];
      expect(endpoint.authorization.credentials).toEqual({ name: 'penstock', key: 'METRICS_TOKEN' });
    });
});

test.each(['small', 'production'])('the chart and the overlay %s render the same objects', (which) => {
  const made = (how: string) =>
    new Map(
      renderedBy(`rendered/${how}-${which}.yaml`)
        .map((one) => plain(one))
        .map((one) => [nameOf(one), one]),
    );
  const chart = made('helm');
  const overlay = made('kustomize');
  expect([...chart.keys()].sort()).toEqual([...overlay.keys()].sort());
  for (const [name, one] of chart) expect(one, name).toEqual(overlay.get(name));
});

test('a rendering with a word that no schema knows is rejected', async () => {
  const [web] = renderedBy('rendered/kustomize-small.yaml').filter(
    ({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'penstock-web',
  ) as Any[];
  web.spec.template.spec.terminationGracePeriod = 30;
  web.spec.replicas = 'two';
  expect(await faultsOf(web)).toEqual([
    expect.stringContaining('spec/replicas'),
    '/spec/template/spec/terminationGracePeriod is not known',
  ]);
});

test('chart, image and package have the same release', () => {
  const { version } = JSON.parse(read('package.json'));
  const chart = parse(read('deploy/helm/penstock/Chart.yaml'));
  expect([chart.version, chart.appVersion]).toEqual([version, version]);
  for (const { file } of renderings) expect(read(`deploy/${file}`)).toContain(`penstock:${version}`);
});

/** Removes members that differ between the two tools: the manager, and the checksum that restarts pods. */
function plain(one: Manifest): Manifest {
  const suffix = /^(penstock)-[a-z0-9]{10}$/;
  const text = JSON.stringify(one, (key, value) => {
    if (/^(?:helm\.sh\/chart|app\.kubernetes\.io\/(?:version|managed-by)|checksum\/config)$/.test(key))
      return undefined;
    if (key === 'annotations' && Object.keys(value).every((name) => name === 'checksum/config'))
      return undefined;
    // Default for a tag other than `latest`.
    if (key === 'imagePullPolicy') return undefined;
    return key === 'name' && typeof value === 'string' ? value.replace(suffix, '$1') : value;
  });
  return JSON.parse(text.replaceAll('"penstock-release-1"', '"penstock-release"'));
}

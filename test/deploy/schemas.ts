/** An object of Kubernetes. */
export interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels?: Record<string, string> };
}

/** Packages generated from the schemas of Kubernetes and of the two operators, by API group. */
const packages: Record<string, string> = {
  'keda.sh': '@kubernetes-models/keda',
  'monitoring.coreos.com': '@kubernetes-models/prometheus-operator',
};

type Model = new (object: object) => { validate(): void };

/**
 * Returns the violations of an object's schema, as `/spec/replicas: …`. Schemas of Kubernetes permit
 * additional names, which
 * a cluster rejects as “unknown field”: a name that the validation never reads is unknown.
 * @throws if no package has its kind
 */
export async function faultsOf(object: Manifest): Promise<string[]> {
  const [group, version] = object.apiVersion.includes('/')
    ? object.apiVersion.split('/')
    : ['', object.apiVersion];
  const home = packages[group!] ?? 'kubernetes-models';
  const schemaPath = [home, group!.replace(/^(?:rbac|storage)$/, '$&.k8s.io'), version]
    .filter(Boolean)
    .join('/');
  const models = (await import(schemaPath)) as Record<string, Model>;
  const Model = models[object.kind];
  if (!Model) throw new Error(`${schemaPath} has no ${object.kind}`);
  const missing = new Set<string>();
  // The model copies its members, and would therefore read all of them.
  const model = new Model(object);
  for (const [name, value] of Object.entries(object))
    Object.assign(model, { [name]: watch(value, `/${name}`, missing) });
  const faults: string[] = [];
  try {
    model.validate();
  } catch (error) {
    faults.push((error as Error).message);
  }
  for (const [name, value] of Object.entries(object))
    for (const at of pathsOf(value, `/${name}`)) if (!missing.has(at)) faults.push(`${at} is not known`);
  return faults;
}

/** Wraps a value so that each member that is read is recorded. */
function watch(value: unknown, at: string, existing: Set<string>): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return new Proxy(value, {
    get(target, name) {
      const member = Reflect.get(target, name);
      if (typeof name === 'symbol' || !Object.hasOwn(target, name)) return member;
      existing.add(`${at}/${name}`);
      return watch(member, `${at}/${name}`, existing);
    },
  });
}

/** Lists the paths of all members below a value. */
function pathsOf(value: unknown, at: string): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) => [
    `${at}/${name}`,
    ...pathsOf(member, `${at}/${name}`),
  ]);
}

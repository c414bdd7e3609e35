import { execFile, execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Finding } from '../../src/admin/doctor/findings.ts';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { spawnOnLeash } from '../setup/leash.ts';
import { leaveBehind } from '../setup/left-behind.ts';
import { leasePort } from '../setup/ports.ts';

const PASSWORD = 'of+all/nodes';
const folder = temporaryFolder('penstock-secure-cluster-');
const at = (name: string) => path.join(folder, name);

/**
 * Creates a self-signed certificate for a host name. Clients must use the name, because the certificate has
 * no address.
 */
function makeCertificate(): void {
  const openssl = (...words: string[]) => execFileSync('openssl', words, { cwd: folder, stdio: 'pipe' });
  writeFileSync(at('names'), 'subjectAltName=DNS:localhost\n');
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  openssl('req', ...kind, '-keyout', 'node.key', '-out', 'node.csr', '-subj', '/CN=node');
  openssl(
    'x509',
    '-req',
    '-in',
    'node.csr',
    '-signkey',
    'node.key',
    '-days',
    '30',
    '-extfile',
    'names',
    '-out',
    'node.crt',
  );
}

/** Starts a node that requires TLS and a password, and announces a host name. */
async function startNode(port: number): Promise<void> {
  const files = [
    '--tls-cert-file',
    at('node.crt'),
    '--tls-key-file',
    at('node.key'),
    '--tls-ca-cert-file',
    at('node.crt'),
  ];
  const { child, exit } = spawnOnLeash(
    [
      ...['redis-server', '--port', '0', '--tls-port', String(port), '--bind', '127.0.0.1', ...files],
      ...['--tls-auth-clients', 'no', '--tls-cluster', 'yes', '--tls-replication', 'yes'],
      ...['--requirepass', PASSWORD, '--masterauth', PASSWORD],
      ...['--cluster-enabled', 'yes', '--cluster-port', String(await leasePort())],
      ...['--cluster-announce-hostname', 'localhost', '--cluster-preferred-endpoint-type', 'hostname'],
      ...['--dir', temporaryFolder('penstock-secure-node-'), '--save', '', '--appendonly', 'yes'],
      ...['--appendfsync', 'always', '--maxmemory-policy', 'noeviction', '--maxmemory', '100mb'],
    ],
    { stdout: 'ignore' },
  );
  leaveBehind(async () => {
    child.kill('SIGKILL');
    await exit;
  });
}

/** Sends a command by redis-cli, which trusts the certificate and has the password. */
const call = async (port: number, ...words: string[]) => {
  const reach = ['--tls', '--cacert', at('node.crt'), '-h', 'localhost', '-p', String(port)];
  const { stdout } = await promisify(execFile)('redis-cli', [...reach, ...words], {
    env: { ...process.env, REDISCLI_AUTH: PASSWORD },
  });
  return stdout;
};

let ports: number[];
let fleet: Fleet;
beforeAll(async () => {
  makeCertificate();
  ports = await Promise.all([1, 2, 3].map(() => leasePort()));
  await Promise.all(ports.map(startNode));
  for (const port of ports)
    await waitUntil(
      () =>
        call(port, 'PING').then(
          (output) => output.includes('PONG'),
          () => false,
        ),
      {
        what: `the node on port ${port}`,
      },
    );
  await call(ports[0]!, '--cluster', 'create', ...ports.map((port) => `127.0.0.1:${port}`), '--cluster-yes');
  for (const port of ports)
    await waitUntil(async () => (await call(port, 'CLUSTER', 'INFO')).includes('cluster_state:ok'), {
      what: 'the cluster',
    });
  const env = {
    REDIS_URL: `rediss://default:${encodeURIComponent(PASSWORD)}@any`,
    REDIS_CLUSTER_NODES: `localhost:${ports[0]}`,
    NODE_EXTRA_CA_CERTS: at('node.crt'),
    ...{ SHARDS: '3', LANES: '2' },
  };
  // No Redis of the fleet's own: use the one of the settings.
  const redis = {
    url: env.REDIS_URL,
    port: ports[0]!,
    dir: folder,
    pid: 0,
    stop: async () => {},
    kill: async () => {},
  };
  fleet = await startFleet('redis', { redis, edges: 1, workers: 1, env });
});
afterAll(() => fleet.stop());

const post = (path: string, json: object) =>
  send(fleet.edges[0]!.port, { method: 'POST', path, key: fleet.workspace.key, json: json as never });

test('objects tracked over TLS take effect in every shard', async () => {
  for (const shard of [0, 1, 2]) {
    const external_id = `user-${shard}`;
    expect((await post('/users/track', { attributes: [{ external_id, shard }] })).status).toBe(201);
    await waitUntil(
      async () => {
        const { body } = await post('/users/export/ids', { external_ids: [external_id] });
        return (body.users as object[] | undefined)?.length === 1;
      },
      { what: external_id },
    );
    if (shard === 2) continue;
    const words = ['workspaces', 'move', fleet.workspace.id, '--shard', String(shard + 1)];
    expect(await spawnPenstock(words, fleet.env)).toMatchObject({ code: 0 });
  }
});

test('rate limits are counted in the cluster', async () => {
  await fleet.pool.query(
    `insert into rate_limits (workspace_id, bucket, requests, window_seconds) values ($1, 'events.list', 3, 60)`,
    [fleet.workspace.id],
  );
  const list = () =>
    send(fleet.edges[0]!.port, { method: 'GET', path: '/events/list', key: fleet.workspace.key });
  await waitUntil(async () => (await list()).status === 429, { what: 'the limit' });
});

test('doctor finds every server by its name', async () => {
  const { stdout } = await spawnPenstock(['doctor', '--json'], fleet.env);
  const { findings } = JSON.parse(stdout) as { findings: Finding[] };
  const ofRedis = findings.filter(({ check }) => check === 'redis');
  expect(ofRedis.filter(({ level }) => level === 'error')).toEqual([]);
  for (const port of ports)
    expect(ofRedis.map(({ finding }) => finding)).toContainEqual(
      expect.stringMatching(`^localhost:${port} has lanes and no replica`),
    );
});

import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { beforeAll, expect, test } from 'vitest';
import type { Finding } from '../../src/admin/doctor/findings.ts';
import { type OwnPostgres, startOwnPostgres } from '../../tools/chaos/own-postgres.ts';
import { startRedis, temporaryFolder } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { spawnPenstock } from './spawn-penstock.ts';

const folder = temporaryFolder('penstock-certificates-');
const at = (name: string) => path.join(folder, name);

/** Creates a self-signed certificate for this machine that is valid for `days` days; with 0 it has expired already. */
function makeCertificate(name: string, days: number): void {
  const openssl = (...words: string[]) => execFileSync('openssl', words, { cwd: folder, stdio: 'pipe' });
  writeFileSync(at('names'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n');
  const key = [
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-keyout',
    `${name}.key`,
  ];
  openssl('req', ...key, '-out', `${name}.csr`, '-subj', `/CN=${name}`);
  const signing = ['-signkey', `${name}.key`, '-days', String(days), '-extfile', 'names'];
  openssl('x509', '-req', '-in', `${name}.csr`, ...signing, '-out', `${name}.crt`);
}

let postgres: OwnPostgres;
let redisPort: number;
let plainRedis: string;

beforeAll(async () => {
  chmodSync(folder, 0o755);
  for (const [name, days] of [
    ['long', 400],
    ['short', 5],
    ['over', 0],
  ] as const)
    makeCertificate(name, days);
  redisPort = await leasePort();
  const files = [
    '--tls-cert-file',
    at('short.crt'),
    '--tls-key-file',
    at('short.key'),
    '--tls-ca-cert-file',
    at('short.crt'),
  ];
  const redis = await startRedis({
    args: ['--tls-port', String(redisPort), '--tls-auth-clients', 'no', ...files],
  });
  plainRedis = redis.url;
  postgres = await startOwnPostgres();
  await showOnPostgres('long');
});

/** Installs a certificate in Postgres. Postgres rejects keys that others can read, and reloads without a restart. */
async function showOnPostgres(name: string): Promise<void> {
  const cluster = path.join(postgres.folder, 'data/postgres');
  const { uid, gid } = statSync(cluster);
  for (const end of ['crt', 'key']) {
    const file = path.join(cluster, `server.${end}`);
    copyFileSync(at(`${name}.${end}`), file);
    chmodSync(file, 0o600);
    chownSync(file, uid, gid);
  }
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  await client.query('alter system set ssl = on');
  await client.query('select pg_reload_conf()');
  await client.end();
}

async function examine(sslmode: string, redisUrl: string, trusted: string) {
  const { stdout } = await spawnPenstock(['doctor', '--json'], {
    ...{ DATABASE_URL: `${postgres.url}?sslmode=${sslmode}`, REDIS_URL: redisUrl, DATA_DIR: folder },
    NODE_EXTRA_CA_CERTS: at(`${trusted}.crt`),
  });
  const { findings } = JSON.parse(stdout) as { findings: Finding[] };
  return findings
    .filter(({ check }) => check === 'certificate')
    .map(({ level, finding }) => [
      level,
      finding.replace(/\(\S+:\d+\)/, '(…)').replace(/\d+ d.*$|\d{4}-.*$/, '…'),
    ]);
}

const overTls = () => `rediss://127.0.0.1:${redisPort}`;

test('penstock doctor prints when store certificates expire and warns two weeks before', async () => {
  writeFileSync(at('both.crt'), execFileSync('cat', [at('long.crt'), at('short.crt')]));
  expect(await examine('verify-full', overTls(), 'both')).toEqual([
    ['ok', 'the certificate of Postgres (…) is valid until …'],
    ['warning', 'The certificate of Redis (…) expires in …'],
  ]);
});

test('penstock doctor reports an untrusted or expired certificate', async () => {
  expect(await examine('verify-full', overTls(), 'long')).toEqual([
    ['ok', 'the certificate of Postgres (…) is valid until …'],
    ['error', 'The certificate of Redis (…) is not trusted on this machine: DEPTH_ZERO_SELF_SIGNED_CERT.'],
  ]);
  await showOnPostgres('over');
  const seen = () => examine('verify-full', plainRedis, 'over');
  await expect
    .poll(seen, { timeout: 20_000 })
    .toEqual([['error', 'The certificate of Postgres (…) has expired: it was valid until …']]);
});

test('penstock doctor checks no certificate if the settings do not use TLS', async () => {
  expect(await examine('disable', plainRedis, 'long')).toEqual([]);
});

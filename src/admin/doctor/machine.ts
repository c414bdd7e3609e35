import { existsSync, readFileSync, statSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import tls from 'node:tls';
import { type Config, ConfigError, readConfig } from '../../platform/config.ts';
import { type Disk, readDisk } from '../../platform/disk.ts';
import { packageVersion } from '../../platform/files.ts';
import { withTimeout } from '../../platform/lifecycle.ts';

/** Result of a check. `error`: something fails now or will lose data. `warning`: it may do so later. */
export interface Finding {
  check: string;
  level: 'ok' | 'warning' | 'error';
  finding: string;
  /** The action to take; null if no action is required. */
  advice: string | null;
  /** The next four are set by checks of the registry: id, impact, console page, and start of the problem (ISO 8601). */
  id?: string;
  impact?: string;
  link?: string;
  since?: string | null;
}

export const ok = (check: string, finding: string): Finding => ({
  check,
  level: 'ok',
  finding,
  advice: null,
});
export const warning = (check: string, finding: string, advice: string): Finding => ({
  ...{ check, level: 'warning', finding, advice },
});
export const error = (check: string, finding: string, advice: string): Finding => ({
  ...{ check, level: 'error', finding, advice },
});

/** Reads the settings from the environment. If they are invalid, `config` is undefined and a finding has the reason. */
export function checkSettings(): { config: Config | undefined; findings: Finding[] } {
  let config: Config;
  try {
    config = readConfig();
  } catch (wrong) {
    if (!(wrong instanceof ConfigError)) throw wrong;
    const advice = 'Correct the setting (see docs/settings.md). No other check could run.';
    return { config: undefined, findings: [error('settings', wrong.message, advice)] };
  }
  const findings = [...openDoors(config), ...missingKeys(config)];
  return { config, findings: findings.length > 0 ? findings : [ok('settings', 'every setting is valid')] };
}

const LOOPBACK = /^(127\.|localhost$|::1$)/;

function* openDoors(config: Config): Iterable<Finding> {
  if (!LOOPBACK.test(config.HOST) && config.METRICS_TOKEN === '')
    yield warning(
      'settings',
      `HOST is ${config.HOST} and METRICS_TOKEN is empty: everyone who reaches PORT can read /metrics`,
      'Set METRICS_TOKEN, or block /metrics in the proxy.',
    );
  if (!LOOPBACK.test(config.BOARD_HOST))
    yield warning(
      'settings',
      `BOARD_HOST is ${config.BOARD_HOST}: other machines can reach the console`,
      'Allow access only from a proxy with TLS or from a private network.',
    );
  if (config.MAX_REDIS_MEMORY_PERCENT > 95)
    yield warning(
      'settings',
      `MAX_REDIS_MEMORY_PERCENT is ${config.MAX_REDIS_MEMORY_PERCENT}: near 100, Redis also refuses the workers`,
      'Set it to 95 or less.',
    );
}

function* missingKeys({ DEPLOYMENT_FORM, INTEGRATION_KEY }: Config): Iterable<Finding> {
  if (DEPLOYMENT_FORM === 'production' && INTEGRATION_KEY === '')
    yield warning(
      'settings',
      'INTEGRATION_KEY is empty: credentials of integrations, streams to webhooks and buckets cannot be stored or read',
      'Create a key with `openssl rand -base64 32`, and set it as INTEGRATION_KEY for sync, board and this command.',
    );
}

/** Reports the releases of Penstock and Node that run this command. Heartbeats contain the releases of processes. */
export function checkVersions(): Finding[] {
  return [ok('version', `penstock ${packageVersion} on Node ${process.version}`)];
}

/** Reads the disks of DATA_DIR and of the temporary folder on this machine. */
export async function readDisks({ DATA_DIR }: Pick<Config, 'DATA_DIR'>): Promise<Disk[]> {
  const disks = [await readDisk('data', path.resolve(DATA_DIR)), await readDisk('tmp', tmpdir())];
  return disks.filter((disk) => disk !== undefined);
}

/** Host names of this machine. The folder of a Unix socket counts too; its slashes are escaped in a URL. */
const HERE = ['', 'localhost', '127.0.0.1', '[::1]'];
const SOCKET = '%2f';

/**
 * Reads the disk of Postgres if Postgres runs on this machine; otherwise returns a finding that it cannot be checked.
 *
 * @param dataDirectory as Postgres reports it; undefined if the role may not read it
 */
export async function readPostgresDisk(databaseUrl: string, dataDirectory?: string): Promise<Disk | Finding> {
  const hostname = URL.canParse(databaseUrl) ? new URL(databaseUrl).hostname : '';
  const onSocket = hostname === '' || hostname.toLowerCase().startsWith(SOCKET);
  if ((onSocket || HERE.includes(hostname)) && dataDirectory) {
    const disk = await readDisk('data', dataDirectory);
    if (disk) return disk;
  }
  const where = onSocket ? 'Postgres' : `Postgres (${hostname})`;
  return ok('disk', `the disk of ${where} cannot be checked from this machine; monitor it there`);
}

/** Names of files with secrets in DATA_DIR; `.env` of docker compose is checked too. */
const secrets = ['password', 'database-url', 'integration-key'];

/** Checks that only the owner can access the files with secrets. */
export function checkFiles({ DATA_DIR }: Config): Finding[] {
  const files = [...secrets.map((name) => path.join(DATA_DIR, name)), '.env'].filter((file) =>
    existsSync(file),
  );
  const open = files.filter((file) => (statSync(file).mode & 0o077) !== 0);
  if (open.length === 0) return [ok('files', 'files with secrets are readable only by their owner')];
  return open.map((file) => {
    const mode = (statSync(file).mode & 0o777).toString(8);
    const judge = file === '.env' ? warning : error;
    return judge(
      'files',
      `${file} has mode ${mode}: other users of this machine can read it`,
      `chmod 600 ${file}`,
    );
  });
}

/** Maximum milliseconds to check the certificate of one server. */
const PATIENCE_MS = 3000;

/** Two weeks in seconds. A certificate that expires earlier is a warning. */
const SOON = 14 * 86_400;

/** SSLRequest message of the Postgres protocol: its length (8) and the code 80877103. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

/** A server to which the processes connect by TLS. */
interface Encrypted {
  store: 'postgres' | 'redis';
  host: string;
  port: number;
  /** Whether the processes refuse to connect if the certificate is not trusted. */
  verifies: boolean;
  ca?: Buffer;
}

/**
 * Checks the certificates of the stores if the settings require TLS. It uses separate connections, because the normal
 * connections fail if a certificate has expired, and the finding must name that certificate.
 */
export async function checkCertificates(databaseUrl: string, redisUrls: string[]): Promise<Finding[]> {
  const servers = [encryptedPostgres(databaseUrl), ...redisUrls.map(encryptedRedis)];
  const found = servers.map(async (server) => (server ? judge(server) : []));
  return (await Promise.all(found)).flat();
}

/** Returns undefined if DATABASE_URL does not require TLS. */
function encryptedPostgres(url: string): Encrypted | undefined {
  if (!URL.canParse(url)) return undefined;
  const { hostname, port, searchParams } = new URL(url);
  if (hostname === '') return undefined;
  const mode =
    searchParams.get('sslmode') ??
    (['true', '1'].includes(searchParams.get('ssl') ?? '') ? 'require' : 'disable');
  if (mode === 'disable') return undefined;
  const root = searchParams.get('sslrootcert');
  return {
    ...{ store: 'postgres', host: hostname, port: Number(port || 5432), verifies: mode !== 'no-verify' },
    ...(root && { ca: readFileSync(root) }),
  };
}

function encryptedRedis(url: string): Encrypted | undefined {
  if (!URL.canParse(url)) return undefined;
  const { protocol, hostname, port } = new URL(url);
  if (protocol !== 'rediss:') return undefined;
  return { store: 'redis', host: hostname, port: Number(port || 6379), verifies: true };
}

/** Returns a URL in the form of REDIS_URL for each Redis server that the settings name. */
export function redisUrls({
  REDIS_URL,
  REDIS_CLUSTER_NODES,
}: Pick<Config, 'REDIS_URL' | 'REDIS_CLUSTER_NODES'>): string[] {
  if (!REDIS_CLUSTER_NODES || !URL.canParse(REDIS_URL)) return [REDIS_URL];
  const { protocol } = new URL(REDIS_URL);
  return REDIS_CLUSTER_NODES.split(',').map((address) => `${protocol}//${address.trim()}`);
}

async function judge(server: Encrypted): Promise<Finding[]> {
  const socket = net.connect(server.port, server.host.replace(/^\[|\]$/g, ''));
  try {
    return await withTimeout(PATIENCE_MS, checkTls(server, socket));
  } catch {
    // The checks of the store report a server that cannot be reached.
    return [];
  } finally {
    socket.destroy();
  }
}

async function checkTls({ store, host, verifies, ca }: Encrypted, socket: net.Socket): Promise<Finding[]> {
  await once(socket, 'connect');
  if (store === 'postgres') {
    socket.write(SSL_REQUEST);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    if (answer[0] !== 'S'.charCodeAt(0))
      return [
        error(
          'certificate',
          'DATABASE_URL requires TLS, and Postgres does not offer it',
          'Set ssl = on in Postgres.',
        ),
      ];
  }
  const named = net.isIP(host) ? {} : { servername: host };
  // An invalid certificate is accepted here so that its fault can be reported; no data is sent to the server.
  const secure = tls.connect({ socket, host, ...named, ...(ca && { ca }), rejectUnauthorized: false });
  await once(secure, 'secureConnect');
  const until = new Date(secure.getPeerCertificate().valid_to);
  const left = (until.getTime() - Date.now()) / 1000;
  const found = `the certificate of ${store} is valid until ${until.toISOString()}`;
  if (left <= 0) return [error('certificate', found, 'Renew it on the server.')];
  const { authorizationError: distrust } = secure;
  if (verifies && distrust)
    return [
      error(
        'certificate',
        `the certificate of ${store} is not trusted on this machine: ${distrust}`,
        'Set NODE_EXTRA_CA_CERTS (for Postgres also sslrootcert) to the authority, and use the host name of the certificate.',
      ),
    ];
  return [left > SOON ? ok('certificate', found) : warning('certificate', found, 'Renew it on the server.')];
}

/** Resolves with the arguments of the next `event`; rejects if the socket fails or closes first. */
function once(socket: net.Socket, event: string): Promise<unknown[]> {
  return new Promise((resolve, reject) => {
    socket.once(event, (...given) => resolve(given));
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('closed')));
  });
}

import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';
import type { Certificate } from '../../checks/readings.ts';
import type { Config } from '../../platform/config.ts';
import { withTimeout } from '../../platform/lifecycle.ts';

/** Maximum milliseconds to check the certificate of one server. */
const PATIENCE_MS = 3000;

/** SSLRequest message of the Postgres protocol: its length (8) and the code 80877103. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

/** A server to which the processes connect by TLS. */
interface Encrypted {
  store: Certificate['store'];
  host: string;
  port: number;
  /** Whether the processes refuse to connect if the certificate is not trusted. */
  verifies: boolean;
  ca?: Buffer;
}

/**
 * Reads the certificates of the stores if the settings require TLS. It uses separate connections, because the normal
 * connections fail if a certificate has expired, and the problem must name that certificate.
 * @throws if the file of sslrootcert cannot be read
 */
export async function readCertificates(databaseUrl: string, config: Config): Promise<Certificate[]> {
  const servers = [encryptedPostgres(databaseUrl), ...redisUrls(config).map(encryptedRedis)];
  const certificates = await Promise.all(servers.map((server) => server && readCertificate(server)));
  return certificates.filter((certificate) => certificate !== undefined);
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
    ...{ store: 'Postgres', host: hostname, port: Number(port || 5432), verifies: mode !== 'no-verify' },
    ...(root && { ca: readFileSync(root) }),
  };
}

function encryptedRedis(url: string): Encrypted | undefined {
  if (!URL.canParse(url)) return undefined;
  const { protocol, hostname, port } = new URL(url);
  if (protocol !== 'rediss:') return undefined;
  return { store: 'Redis', host: hostname, port: Number(port || 6379), verifies: true };
}

/** Returns a URL in the form of REDIS_URL for each Redis server that the settings name. */
function redisUrls({
  REDIS_URL,
  REDIS_CLUSTER_NODES,
}: Pick<Config, 'REDIS_URL' | 'REDIS_CLUSTER_NODES'>): string[] {
  if (!REDIS_CLUSTER_NODES || !URL.canParse(REDIS_URL)) return [REDIS_URL];
  const { protocol } = new URL(REDIS_URL);
  return REDIS_CLUSTER_NODES.split(',').map((address) => `${protocol}//${address.trim()}`);
}

/** Returns undefined if the server cannot be reached. The checks of the store report that. */
async function readCertificate(server: Encrypted): Promise<Certificate | undefined> {
  const socket = net.connect(server.port, server.host.replace(/^\[|\]$/g, ''));
  try {
    return await withTimeout(PATIENCE_MS, connectTls(server, socket));
  } catch {
    return undefined;
  } finally {
    socket.destroy();
  }
}

async function connectTls(
  { store, host, port, verifies, ca }: Encrypted,
  socket: net.Socket,
): Promise<Certificate> {
  const server = `${host}:${port}`;
  await once(socket, 'connect');
  if (store === 'Postgres') {
    socket.write(SSL_REQUEST);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    if (answer[0] !== 'S'.charCodeAt(0)) return { store, server, validUntil: undefined };
  }
  const named = net.isIP(host) ? {} : { servername: host };
  // An invalid certificate is accepted here so that its fault can be reported; no data is sent to the server.
  const secure = tls.connect({ socket, host, ...named, ...(ca && { ca }), rejectUnauthorized: false });
  await once(secure, 'secureConnect');
  const validUntil = new Date(secure.getPeerCertificate().valid_to);
  const { authorizationError: distrust } = secure;
  return { store, server, validUntil, ...(verifies && distrust && { distrust: String(distrust) }) };
}

/** Resolves with the arguments of the next `event`; rejects if the socket fails or closes first. */
function once(socket: net.Socket, event: string): Promise<unknown[]> {
  return new Promise((resolve, reject) => {
    socket.once(event, (...given) => resolve(given));
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('closed')));
  });
}

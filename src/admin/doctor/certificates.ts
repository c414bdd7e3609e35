import { readFileSync } from 'node:fs';
import net from 'node:net';
import tls from 'node:tls';
import type { Config } from '../../platform/config.ts';
import { within } from '../../platform/lifecycle.ts';
import { error, type Finding, ok, warning } from './machine.ts';

/** Milliseconds for one server. */
const PATIENCE_MS = 3000;

/** Seconds: two weeks. */
const SOON = 14 * 86_400;

/** What a client of Postgres says who wants TLS: its length, and a number that is no version. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);

/** A server that is reached by TLS. */
interface Encrypted {
  store: 'postgres' | 'redis';
  host: string;
  port: number;
  /** Whether a certificate that is not trusted keeps our processes out. */
  verifies: boolean;
  ca?: Buffer;
}

/**
 * The certificates of the stores, as far as the settings ask for TLS. They are asked for apart from the connections that do
 * the work: one that is over keeps those out, and then it has to be named.
 */
export async function checkCertificates(databaseUrl: string, redisUrls: string[]): Promise<Finding[]> {
  const servers = [encryptedPostgres(databaseUrl), ...redisUrls.map(encryptedRedis)];
  const found = servers.map(async (server) => (server ? judge(server) : []));
  return (await Promise.all(found)).flat();
}

/** Undefined: the settings do not ask for TLS. */
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

/** The servers that the settings name, each as REDIS_URL would. */
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
    return await within(PATIENCE_MS, ask(server, socket));
  } catch {
    // That it cannot be reached at all is said by who looks at the store.
    return [];
  } finally {
    socket.destroy();
  }
}

async function ask({ store, host, verifies, ca }: Encrypted, socket: net.Socket): Promise<Finding[]> {
  await once(socket, 'connect');
  if (store === 'postgres') {
    socket.write(SSL_REQUEST);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    if (answer[0] !== 'S'.charCodeAt(0))
      return [
        error('certificate', 'Postgres offers no TLS, and DATABASE_URL asks for it', 'Set ssl = on there.'),
      ];
  }
  const named = net.isIP(host) ? {} : { servername: host };
  // What is wrong with it is to be read, so it is not refused: nothing is sent to that server.
  const secure = tls.connect({ socket, host, ...named, ...(ca && { ca }), rejectUnauthorized: false });
  await once(secure, 'secureConnect');
  const until = new Date(secure.getPeerCertificate().valid_to);
  const left = (until.getTime() - Date.now()) / 1000;
  const found = `that of ${store} is valid until ${until.toISOString()}`;
  if (left <= 0) return [error('certificate', found, 'Renew it on the server.')];
  const { authorizationError: distrust } = secure;
  if (verifies && distrust)
    return [
      error(
        'certificate',
        `that of ${store} is not trusted here: ${distrust}`,
        'Name the authority by NODE_EXTRA_CA_CERTS (for Postgres also sslrootcert), and the host as the certificate does.',
      ),
    ];
  return [left > SOON ? ok('certificate', found) : warning('certificate', found, 'Renew it on the server.')];
}

/** What comes with the event; rejects with the error that comes instead. */
function once(socket: net.Socket, event: string): Promise<unknown[]> {
  return new Promise((resolve, reject) => {
    socket.once(event, (...given) => resolve(given));
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('closed')));
  });
}

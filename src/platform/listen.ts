import type { IncomingMessage, Server } from 'node:http';
import { type AddressInfo, BlockList, isIP, Server as NetServer, type Socket } from 'node:net';
import { hostname } from 'node:os';
import type { Service } from './lifecycle.ts';
import { poll } from './poll.ts';

/** Bytes of the longest request line with its headers: 50 ids of 987 bytes, each byte as %XX, take 150,000. */
export const MAX_HEAD = 196_608;

/** Milliseconds. A client that sends slower than this is cut off, so that it cannot hold a connection for ever. */
const HEADERS_TIMEOUT = 10_000;
/** With the time between two looks it stays below 15 s. */
const REQUEST_TIMEOUT = 13_000;
/** Longer than the idle time of the usual load balancers (60 s), so that they close first. */
const KEEP_ALIVE_TIMEOUT = 65_000;

const MAX_CONNECTIONS = 10_000;

/** For `createServer`. */
export const serverOptions = {
  /** How often the first two are looked at, in milliseconds; Node's own 30 s would stretch them. */
  connectionsCheckingInterval: 1000,
  /** A request without Host is refused by the app, since Node would answer with a bare status line. */
  requireHostHeader: false,
  maxHeaderSize: MAX_HEAD,
};

/**
 * After an answer that closes its connection: milliseconds for which what still comes is read and thrown away, and
 * bytes of it, more than the longest body has.
 */
const LINGER_MS = 1000;
const LINGER_BYTES = 8_388_608;

/** Bounds how long and how many connections may be open, and closes them so that each sender reads its answer. */
export function limitConnections(server: Server): void {
  // How Node closes a connection after its last answer. A function that all share: there are thousands.
  server.on('connection', (socket: Socket) => {
    socket.destroySoon = closeThis;
  });
  // A client may close its sending half after its request, and still reads the answer. Node alone would end both halves.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.headersTimeout = HEADERS_TIMEOUT;
  server.requestTimeout = REQUEST_TIMEOUT;
  server.keepAliveTimeout = KEEP_ALIVE_TIMEOUT;
  server.maxConnections = MAX_CONNECTIONS;
}

function closeThis(this: Socket): void {
  closeLingering(this);
}

const NOTHING = Buffer.alloc(0);

/** Those that have had their last answer. */
const lingering = new WeakSet<Socket>();

/**
 * Lingering close: sends what is written and closes that half, then throws away what the other side is still sending,
 * until it closes too. A connection that is closed with bytes unread is reset by the kernel, and the sender of a body
 * that was refused early would see that and not its answer. Nothing of what comes is kept or parsed.
 */
export function closeLingering(socket: Socket): void {
  if (socket.destroyed || lingering.has(socket)) return;
  lingering.add(socket);
  socket.end();
  // Nothing more comes: it is gone when all is sent.
  if (socket.readableEnded) return;
  const most = socket.bytesRead + LINGER_BYTES;
  const throwAway = () => {
    if (socket.bytesRead > most) socket.destroy();
  };
  // With a listener Node's parser lets go of the handle; its own one would go on to parse what comes.
  socket.on('data', throwAway);
  for (const other of socket.listeners('data'))
    if (other !== throwAway) socket.off('data', other as () => void);
  // The parser may have stopped it, which the stream does not know: a piece of nothing makes it read on.
  socket.push(NOTHING);
  socket.resume();
  const bound = () => void setTimeout(() => socket.destroy(), LINGER_MS).unref();
  // An answer that is read slowly is not cut short.
  if (socket.writableFinished) bound();
  else socket.once('finish', bound);
}

/** Where a server listens, as `host:port`, for others of its network: one that listens everywhere is known by its host's name. */
export function addressOf(server: NetServer): string {
  const { address, family, port } = server.address() as AddressInfo;
  const isEverywhere = address === '0.0.0.0' || address === '::';
  return `${isEverywhere ? hostname() : family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/** Milliseconds in which a client may still send on a connection that it holds; the answer then closes it. */
const FAREWELL = 1000;

/**
 * Listens; rejects when the port cannot be had. Stopping: no new connections, and what arrives on the open ones is
 * answered with `Connection: close`. Those that stay idle are closed after a second, so that a keep-alive client loses
 * no request.
 */
export async function listen(server: Server, port: number, host: string): Promise<Service> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(new Error(whyNotListening(error, ['PORT', port], ['HOST', host])));
    });
    server.listen(port, host, () => {
      server.removeAllListeners('error');
      resolve();
    });
  });
  return {
    name: 'http server',
    stop: () =>
      new Promise((resolve) => {
        server.prependListener('request', (_request, response) => response.setHeader('Connection', 'close'));
        const sweep = poll(FAREWELL, () => server.closeIdleConnections());
        // The close of http.Server would cut idle connections at once, under a request that is on its way.
        NetServer.prototype.close.call(server, () => {
          void sweep.stop();
          resolve();
        });
      }),
  };
}

/** Why a server does not listen, by its settings, and what to do. */
export function whyNotListening(
  { code, message }: NodeJS.ErrnoException,
  [port, number]: [setting: string, number: number],
  [host, address]: [setting: string, address: string],
): string {
  if (code === 'EADDRINUSE')
    return `${port} ${number} is in use on ${address}; stop the program that uses it, or set ${port} to another port`;
  if (code === 'EACCES')
    return `${port} ${number} is not allowed for this user; set ${port} above 1023, or use a proxy`;
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return `${host} ${address} is not an address of this machine; set ${host} to one, or to 0.0.0.0 for all`;
  return `${port} ${number} cannot be listened on at ${host} ${address}: ${message}`;
}

/** `http://host/path`, which a server has to take as `/path` (RFC 9112 §3.2.2). */
const ABSOLUTE = /^https?:\/\/[^/?#\\]+(?=\/)/i;

/**
 * A path as RFC 3986 writes it, and what follows it. No fragment, no backslash, nothing that is not seen: what reads
 * URLs would drop or change these, so that a path would have two spellings.
 */
const EXACT = /^\/[\x21-\x22\x24-\x5b\x5d-\x7e]*$/;

/** Path and query of a request, to the letter; nothing where it names no path. */
export function targetOf({ url = '' }: IncomingMessage): string | undefined {
  const target = url.startsWith('/') ? url : url.replace(ABSOLUTE, '');
  const query = target.indexOf('?');
  return EXACT.test(query < 0 ? target : target.slice(0, query)) ? target : undefined;
}

/** Whether a request says once to whom it goes; HTTP/1.0 may leave it out. Node keeps the first of several. */
export function namesOneHost({ rawHeaders, httpVersion }: IncomingMessage): boolean {
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  return hosts === 1 || (hosts === 0 && httpVersion !== '1.1');
}

/** Whether a text is an IP address or a CIDR subnet, as Node's own block list understands them. */
export function isAddressOrSubnet(entry: string): boolean {
  const [address = '', prefix, ...rest] = entry.split('/');
  const version = isIP(address);
  // A zone (fe80::1%eth0) names an interface of one machine and never comes with a request.
  if (version === 0 || address.includes('%') || rest.length > 0) return false;
  if (prefix === undefined) return true;
  if (String(Number(prefix)) !== prefix) return false;
  try {
    new BlockList().addSubnet(address, Number(prefix), version === 4 ? 'ipv4' : 'ipv6');
    return true;
  } catch {
    return false;
  }
}

/** Returns whether a host name or an address is reached from this machine only. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

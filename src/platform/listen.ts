import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { type AddressInfo, BlockList, isIP, Server as NetServer, type Socket } from 'node:net';
import { hostname } from 'node:os';
import type { Service } from './lifecycle.ts';
import { poll } from './poll.ts';

/** Maximum bytes of a request line with its headers: 50 ids of 987 bytes, each byte as %XX, take 150,000. */
const MAX_HEAD = 196_608;

/**
 * Milliseconds in which the headers must arrive. A slower client is disconnected, so that it cannot hold a
 * connection indefinitely.
 */
const HEADERS_TIMEOUT = 10_000;
/**
 * Milliseconds in which a request must arrive. With the interval of the checks, a request takes less than 15
 * s.
 */
const REQUEST_TIMEOUT = 13_000;
/** Longer than the idle time of the usual load balancers (60 s), so that they close first. */
const KEEP_ALIVE_TIMEOUT = 65_000;

const MAX_CONNECTIONS = 10_000;

/** Options for `createServer`. */
export const serverOptions = {
  /**
   * Milliseconds between two checks of the header and request timeouts. The default of Node, 30 s, would
   * extend both timeouts.
   */
  connectionsCheckingInterval: 1000,
  /** The app rejects a request without Host, because Node would send a response without a body. */
  requireHostHeader: false,
  maxHeaderSize: MAX_HEAD,
};

/**
 * Limits for reading and discarding input after a response that closes its connection, in milliseconds and
 * bytes. The byte limit is larger than the largest body.
 */
const LINGER_MS = 1000;
const LINGER_BYTES = 8_388_608;

/**
 * Limits how many connections may be open and for how long, and closes connections so that each client can
 * read its response.
 */
export function limitConnections(server: Server): void {
  server.on('request', lingerAfterLast);
  // Ignore an unknown Expect header. By default, Node answers such a request with 417 and no body.
  server.on('checkExpectation', (request, response) => server.emit('request', request, response));
  // A client may close its sending half after its request and still read the response. By default, Node would
  // end both halves, and no documented option changes this
  // (docs/adr/0107-half-closed-clients-need-an-undocumented-setting.md).
  Object.assign(server, { httpAllowHalfOpen: true });
  server.headersTimeout = HEADERS_TIMEOUT;
  server.requestTimeout = REQUEST_TIMEOUT;
  server.keepAliveTimeout = KEEP_ALIVE_TIMEOUT;
  server.maxConnections = MAX_CONNECTIONS;
}

/**
 * Closes a connection slowly after its last response. When a response has been sent, Node ends the socket if the
 * response is the last one, and then destroys the socket as soon as its output is sent. The kernel would reset a
 * connection that is destroyed with unread input.
 */
function lingerAfterLast(_request: IncomingMessage, response: ServerResponse): void {
  // The listener of Node was added before this one, so it has ended the socket already.
  response.once('finish', lingerIfEnded);
}

/** All responses share this function. A function for each response would cost memory for each connection. */
function lingerIfEnded(this: ServerResponse): void {
  const { socket } = this.req;
  if (!socket.writableEnded) return;
  socket.off('finish', socket.destroy);
  closeLingering(socket);
}

const NOTHING = Buffer.alloc(0);

/** Sockets whose last response has been written. */
const lingering = new WeakSet<Socket>();

/**
 * Lingering close: sends the pending output, closes the sending half, then discards input until the client
 * closes as well. The kernel resets a connection that is closed with unread input, so a client whose body was
 * refused early would see the reset and not its response. The discarded input is neither stored nor parsed.
 */
export function closeLingering(socket: Socket): void {
  if (socket.destroyed || lingering.has(socket)) return;
  lingering.add(socket);
  socket.end();
  // The client has already closed its half, so the socket closes when the output is sent.
  if (socket.readableEnded) return;
  const limit = socket.bytesRead + LINGER_BYTES;
  const discard = () => {
    if (socket.bytesRead > limit) socket.destroy();
  };
  // Adding a listener makes the HTTP parser of Node release the handle. Its own listener must be removed,
  // because it would continue to parse the input.
  socket.on('data', discard);
  for (const other of socket.listeners('data'))
    if (other !== discard) socket.off('data', other as () => void);
  // The parser may have paused the handle without pausing the stream. Pushing an empty chunk makes the stream
  // read again.
  socket.push(NOTHING);
  socket.resume();
  const bound = () => void setTimeout(() => socket.destroy(), LINGER_MS).unref();
  // Start the time limit when the response is sent, so that a slow reader still gets all of it.
  if (socket.writableFinished) bound();
  else socket.once('finish', bound);
}

/**
 * Returns the address of a server as `host:port` for other machines of its network. A server that listens on
 * all addresses is named by the host name.
 */
export function addressOf(server: NetServer): string {
  const { address, family, port } = server.address() as AddressInfo;
  const isEverywhere = address === '0.0.0.0' || address === '::';
  return `${isEverywhere ? hostname() : family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/**
 * Milliseconds in which a client may send another request on an open connection; the response then closes it.
 */
const FAREWELL = 1000;

/**
 * Starts listening; rejects if the port cannot be opened. While stopping, the server accepts no new
 * connections and answers requests on open ones with `Connection: close`. Connections that stay idle are
 * closed after a second, so that a keep-alive client loses no request.
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
        // `http.Server.close` would close idle connections immediately, also one on which a request is
        // arriving.
        NetServer.prototype.close.call(server, () => {
          void sweep.stop();
          resolve();
        });
      }),
  };
}

/** Returns why a server cannot listen, with the names of its settings and the fix. */
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

/**
 * A request target in absolute form, `http://host/path`. A server must treat it as `/path` (RFC 9112 §3.2.2).
 */
const ABSOLUTE = /^https?:\/\/[^/?#\\]+(?=\/)/i;

/**
 * A path with the characters of RFC 3986, and its query. Fragments, backslashes and invisible characters are
 * excluded: URL parsers drop or change them, so one path would have two spellings.
 */
const EXACT = /^\/[\x21-\x22\x24-\x5b\x5d-\x7e]*$/;

/** Returns the path and query of a request unchanged; undefined if the target is not a path. */
export function targetOf({ url = '' }: IncomingMessage): string | undefined {
  const target = url.startsWith('/') ? url : url.replace(ABSOLUTE, '');
  const query = target.indexOf('?');
  return EXACT.test(query < 0 ? target : target.slice(0, query)) ? target : undefined;
}

/**
 * Returns whether a request has exactly one Host header. HTTP/1.0 may omit it. Node would use the first of
 * several headers.
 */
export function namesOneHost({ rawHeaders, httpVersion }: IncomingMessage): boolean {
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  return hosts === 1 || (hosts === 0 && httpVersion !== '1.1');
}

/** Returns whether a text is an IP address or a CIDR subnet that Node's `BlockList` accepts. */
export function isAddressOrSubnet(entry: string): boolean {
  const [address = '', prefix, ...rest] = entry.split('/');
  const version = isIP(address);
  // A zone (fe80::1%eth0) names an interface of one machine, and no request carries one.
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

/** Returns whether a host name or an address is reachable from this machine only. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

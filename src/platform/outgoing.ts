import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { readUpTo } from './bounded-body.ts';
import type { Reach } from './reach.ts';
import { withTimeLimit } from './time-limit.ts';

/** Maximum bytes of a response that are read: enough for an error message. */
const MAX_RESPONSE_BYTES = 16_384;

interface OutgoingRequest {
  headers: Record<string, string>;
  body: string | Buffer;
  /** Time limit for the whole request: connection, sending and response. */
  milliseconds: number;
  signal?: AbortSignal;
}

interface OutgoingAnswer {
  status: number;
  headers: IncomingMessage['headers'];
  /** The first bytes of the body as UTF-8. */
  body: string;
}

interface Caller {
  /**
   * Sends one request. Redirects are returned as responses and not followed.
   * @throws {RefusedAddress} for an address in a refused network, the error of the connection, or a
   * `TimeoutError`
   */
  post(url: string, request: OutgoingRequest): Promise<OutgoingAnswer>;
  close(): void;
}

/**
 * Creates a client for addresses that users configure. Connections are kept alive.
 * @param connections maximum number of connections to one host
 */
export function createCaller(reach: Reach, { connections = 4 } = {}): Caller {
  const options = { keepAlive: true, maxSockets: connections, lookup: reach.lookup };
  const agents = { 'http:': new HttpAgent(options), 'https:': new HttpsAgent(options) };

  return {
    async post(url, { headers, body, milliseconds, signal }) {
      const target = new URL(url);
      const whyNot = refusalOfUrl(url);
      if (whyNot) throw new TypeError(`the address ${whyNot}`);
      reach.requireAllowed(target.hostname);
      const send = target.protocol === 'https:' ? httpsRequest : httpRequest;
      const agent = agents[target.protocol as keyof typeof agents];
      const length = Buffer.byteLength(body);
      return withTimeLimit(
        { signals: [signal], milliseconds },
        (ends) =>
          new Promise((resolve, reject) => {
            const request = send(target, {
              method: 'POST',
              agent,
              headers: { ...headers, 'content-length': length },
              signal: ends,
            });
            request.on('error', reject);
            request.on('response', (response) => void readAnswer(response).then(resolve, reject));
            request.end(body);
          }),
      );
    },
    close() {
      for (const agent of Object.values(agents)) agent.destroy();
    },
  };
}

async function readAnswer(response: IncomingMessage): Promise<OutgoingAnswer> {
  const { bytes } = await readUpTo(MAX_RESPONSE_BYTES, response);
  return { status: response.statusCode!, headers: response.headers, body: bytes.toString('utf8') };
}

const MAX_URL_LENGTH = 2000;

/**
 * @returns the rule that the URL of a webhook or callback breaks, as a predicate for its name; undefined if
 * it is valid
 */
export function refusalOfUrl(url: string): string | undefined {
  if (url.length > MAX_URL_LENGTH) return `must have at most ${MAX_URL_LENGTH} characters`;
  if (!URL.canParse(url) || !/^https?:\/\//i.test(url)) return 'must be an URL with http:// or https://';
  const { username, password, hash } = new URL(url);
  if (username || password) return 'must not have a user or a password in it';
  if (hash) return 'must not have a fragment (#)';
  return undefined;
}

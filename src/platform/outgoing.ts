import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { readUpTo } from './bounded-body.ts';
import type { Reach } from './reach.ts';
import { withTimeLimit } from './time-limit.ts';

/** Bytes of an answer that are kept: enough for words of an error. What is behind them is not read. */
const MOST_ANSWER_BYTES = 16_384;

export interface OutgoingRequest {
  headers: Record<string, string>;
  body: string | Buffer;
  /** For all of it: connection, sending, answer. */
  milliseconds: number;
  signal?: AbortSignal;
}

export interface OutgoingAnswer {
  status: number;
  headers: IncomingMessage['headers'];
  /** Its first bytes, as UTF-8. */
  body: string;
}

export interface Caller {
  /**
   * One request. A redirect is an answer as any other, and is not followed.
   * @throws {RefusedAddress} for an address that may not be reached; what the connection fails with; `TimeoutError`
   */
  post(url: string, request: OutgoingRequest): Promise<OutgoingAnswer>;
  close(): void;
}

/**
 * Sends to addresses that somebody else has named, keeping connections.
 * @param connections most of them to one host
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
  const { bytes } = await readUpTo(MOST_ANSWER_BYTES, response);
  return { status: response.statusCode!, headers: response.headers, body: bytes.toString('utf8') };
}

const MOST_URL = 2000;

/** @returns which rule an address of a webhook or callback breaks, to stand behind its name; undefined if none */
export function refusalOfUrl(url: string): string | undefined {
  if (url.length > MOST_URL) return `must have at most ${MOST_URL} characters`;
  if (!URL.canParse(url) || !/^https?:\/\//i.test(url)) return 'must be an URL with http:// or https://';
  const { username, password, hash } = new URL(url);
  if (username || password) return 'must not have a user or a password in it';
  if (hash) return 'must not have a fragment (#)';
  return undefined;
}

import type { IncomingMessage, ServerResponse } from 'node:http';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { nowDate } from '../../platform/clock.ts';
import { containsSubset } from '../../platform/subset.ts';
import { hasBody, type RequestInHand } from '../request.ts';

/** Maximum number of kept requests, and maximum bytes of each body. */
const MAX_REQUESTS = 1000;
const MAX_BODY_BYTES = 262_144;

/** Selects requests of the journal. An absent member matches each request. */
export interface RequestMatcher {
  method?: string;
  path?: string;
  status?: number;
  /** Members that the JSON body contains. */
  body?: unknown;
}

interface Recorded {
  at: Date;
  method: string;
  url: string;
  headers: IncomingMessage['headers'];
  chunks: Buffer[];
  bytes: number;
  request: IncomingMessage;
  response: ServerResponse;
}

/** A request as the journal shows it. */
interface JournalEntry {
  request_id: string | null;
  received_at: string;
  method: string;
  path: string;
  query: Record<string, string>;
  headers: IncomingMessage['headers'];
  /** Parsed JSON, or text; null if there was no body, or if it had more than 256 KiB. */
  body: unknown;
  /** Null while the request is not answered, or if its connection was closed first. */
  status: number | null;
}

/** Keeps the latest requests of the client under test. */
export class Journal {
  #recorded: Recorded[] = [];

  /** Records a request, before its body is read. */
  record(request: IncomingMessage, response: ServerResponse): void {
    const { method = '', url = '', headers } = request;
    const recorded: Recorded = {
      at: nowDate(),
      method,
      url,
      headers,
      chunks: [],
      bytes: 0,
      request,
      response,
    };
    if (this.#recorded.push(recorded) > MAX_REQUESTS) this.#recorded.shift();
    if (!hasBody(request)) return;
    // Listening starts the flow of the body, and the handler also listens in the same turn of the event loop.
    request.on('data', (chunk: Buffer) => {
      recorded.bytes += chunk.length;
      if (recorded.bytes <= MAX_BODY_BYTES) recorded.chunks.push(chunk);
      else recorded.chunks = [];
    });
  }

  /** Lists the requests that match, oldest first. */
  find({ method, path, status, body }: RequestMatcher): JournalEntry[] {
    return this.#recorded
      .filter((one) => method === undefined || one.method === method.toUpperCase())
      .filter((one) => path === undefined || pathOf(one.url) === path)
      .map(shown)
      .filter((one) => status === undefined || one.status === status)
      .filter((one) => body === undefined || containsSubset(one.body, body));
  }

  clear(): void {
    this.#recorded = [];
  }
}

/** Returns the path of a request target. */
export const pathOf = (url: string): string => url.split('?', 1)[0]!;

function shown(recorded: Recorded): JournalEntry {
  const { at, method, url, headers, request, response } = recorded;
  const id = (request as RequestInHand).requestId ?? response.getHeader('X-Request-Id');
  return {
    request_id: id === undefined ? null : String(id),
    received_at: at.toISOString(),
    method,
    path: pathOf(url),
    query: Object.fromEntries(new URLSearchParams(url.slice(pathOf(url).length))),
    headers,
    body: bodyOf(recorded),
    status: response.headersSent ? response.statusCode : null,
  };
}

const decoders: Record<string, (bytes: Buffer) => Buffer> = {
  gzip: gunzipSync,
  deflate: inflateSync,
  br: brotliDecompressSync,
};

function bodyOf({ chunks, headers }: Recorded): unknown {
  if (chunks.length === 0) return null;
  const decode = decoders[headers['content-encoding'] ?? ''];
  let text: string;
  try {
    const bytes = Buffer.concat(chunks);
    text = (decode ? decode(bytes) : bytes).toString();
  } catch {
    return null;
  }
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

import { Agent, request } from 'node:http';

export interface Answer {
  /** Absent: the connection broke before an answer came. */
  status?: number;
  requestId?: string;
  retryAfter?: string;
  body?: { message: string; errors?: unknown[] };
  /** The web process will accept no further requests on this connection. */
  closing: boolean;
  milliseconds: number;
  /** No connection could be made: the request was never sent. */
  neverSent: boolean;
}

/**
 * Creates a client with one kept-alive connection per web process, like a typical back end. It never repeats
 * a request by
 * itself.
 */
export function createClient(key: string) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });

  function post(port: number, path: string, body: unknown): Promise<Answer> {
    const text = JSON.stringify(body);
    const started = performance.now();
    return new Promise((resolve) => {
      const end = (answer: Partial<Answer>) =>
        resolve({ closing: false, neverSent: false, milliseconds: performance.now() - started, ...answer });
      const sent = request(
        {
          agent,
          port,
          path,
          method: 'POST',
          headers: {
            Authorization: `Bearer ${key}`,
            'Content-Type': 'application/json',
            'Content-Length': Buffer.byteLength(text),
          },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk) => chunks.push(chunk));
          response.on('error', () => end({}));
          response.on('end', () =>
            end({
              status: response.statusCode!,
              requestId: String(response.headers['x-request-id']),
              ...(response.headers['retry-after'] && { retryAfter: response.headers['retry-after'] }),
              body: JSON.parse(Buffer.concat(chunks).toString()),
              closing: response.headers.connection === 'close',
            }),
          );
        },
      );
      sent.on('error', (error: NodeJS.ErrnoException) => end({ neverSent: error.code === 'ECONNREFUSED' }));
      sent.end(text);
    });
  }

  return { post, close: () => agent.destroy() };
}

export type Client = ReturnType<typeof createClient>;

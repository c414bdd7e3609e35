import type { Fleet } from '../../test/setup/fleet.ts';

/** A response with any status. */
export interface Probed {
  status: number;
  text: string;
  milliseconds: number;
}

/** Sends a body unchanged over a separate connection. */
export async function probe(
  port: number,
  key: string,
  body: string | Buffer | ReadableStream,
  headers: Record<string, string> = {},
): Promise<Probed> {
  const from = performance.now();
  try {
    const response = await fetch(`http://127.0.0.1:${port}/users/track`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      body: body as never,
      ...(body instanceof ReadableStream && { duplex: 'half' }),
    } as RequestInit);
    const text = await response.text();
    return { status: response.status, text, milliseconds: performance.now() - from };
  } catch (error) {
    // The connection was closed before the whole body was sent, or there was no response.
    return {
      status: 0,
      text: String((error as Error).cause ?? error),
      milliseconds: performance.now() - from,
    };
  }
}

/** Returns the maximum event-loop lag of the web processes in seconds since the previous call. */
export async function eventLoopLag({ edges }: Fleet): Promise<number> {
  const lags = await Promise.all(
    edges.map(async ({ port }) => {
      const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(text)?.[1]);
    }),
  );
  return Math.max(...lags);
}

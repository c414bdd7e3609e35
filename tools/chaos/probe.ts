import type { Fleet } from '../../test/setup/fleet.ts';

/** One answer, whatever it is. */
export interface Probed {
  status: number;
  text: string;
  milliseconds: number;
}

/** Sends a body as it is, on a connection of its own. */
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
    // It was answered and cut before all of it was sent, or not answered at all.
    return {
      status: 0,
      text: String((error as Error).cause ?? error),
      milliseconds: performance.now() - from,
    };
  }
}

/** Seconds that the event loop of an edge was held up at the worst since it was last asked. */
export async function eventLoopLag({ edges }: Fleet): Promise<number> {
  const lags = await Promise.all(
    edges.map(async ({ port }) => {
      const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      return Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(text)?.[1]);
    }),
  );
  return Math.max(...lags);
}

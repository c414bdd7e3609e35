import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { leaveBehind } from '../setup/left-behind.ts';

export interface Received {
  id: string;
  type: string;
  time: string;
  workspace_id: string;
  position: string;
  user: { service_id: string; external_id: string | null } | null;
  data: Record<string, unknown>;
}

/** A request: its headers, its body as text, and the messages in it. */
export interface Arrived {
  headers: IncomingMessage['headers'];
  body: string;
  messages: Received[];
}

/** Starts a receiver of webhooks: a real HTTP server. */
export async function startReceiver() {
  const receiver = {
    url: '',
    /** Requests that were answered with 2xx, in order. */
    taken: [] as Arrived[],
    /** Number of all requests, whatever their answer. */
    requests: 0,
    answer: undefined as ((response: ServerResponse) => void) | undefined,
    messages: () => receiver.taken.flatMap(({ messages }) => messages),
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  const server = createServer(async (request, response) => {
    response.on('error', () => {});
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    receiver.requests += 1;
    if (receiver.answer) return receiver.answer(response);
    const body = Buffer.concat(chunks).toString('utf8');
    receiver.taken.push({ headers: request.headers, body, messages: JSON.parse(body).messages });
    response.statusCode = 204;
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/in`;
  leaveBehind(receiver.stop);
  return receiver;
}

export type Receiver = Awaited<ReturnType<typeof startReceiver>>;

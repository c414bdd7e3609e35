import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/**
 * Listens on the port of the console and starts the console at the first connection, because a run of tests
 * does not need the memory and time that the console takes. The console then listens on the port itself, and
 * the first connections are forwarded to it.
 * @param load loads the console; resolves with the function that starts it
 */
export async function listenForConsole(
  { port, host }: { port: number; host: string },
  load: () => Promise<() => Promise<void>>,
): Promise<void> {
  const waiting: Socket[] = [];
  const server = createServer({ pauseOnConnect: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    waiting.push(socket);
  });
  server.listen({ port, host, exclusive: true });
  await once(server, 'listening');
  const { address } = server.address() as AddressInfo;
  server.once('connection', () => void takeOver());

  async function takeOver(): Promise<void> {
    const start = await load();
    server.close();
    await start();
    for (const socket of waiting) forward(socket, connect(port, address));
  }
}

function forward(client: Socket, console: Socket): void {
  console.on('error', () => client.destroy());
  client.pipe(console).pipe(client);
}

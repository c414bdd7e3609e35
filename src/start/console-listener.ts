import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/**
 * Listens on the port of the console, and starts the console at the first connection: it takes memory and time that a run
 * of tests does not need. The console then listens on the port itself, and the first connections are passed on to it.
 * @param load loads the console, and resolves with what starts it
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
    for (const socket of waiting) passOn(socket, connect(port, address));
  }
}

function passOn(client: Socket, console: Socket): void {
  console.on('error', () => client.destroy());
  client.pipe(console).pipe(client);
}

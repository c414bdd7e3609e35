import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { Shot } from './requests.ts';

/**
 * Milliseconds within which an answer or the end of the connection must arrive: the service closes slow
 * connections before.
 */
const PATIENCE = 25_000;

export interface Hit {
  /** Absent if the connection ended without a response. */
  status?: number;
  answer: string;
}

/** Sends requests one after the other, on one connection as long as it lasts. */
export function createGun(port: number) {
  let socket: Socket | undefined;

  async function open(): Promise<Socket> {
    const fresh = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    fresh.on('error', () => {});
    await once(fresh, 'connect');
    fresh.setNoDelay(true);
    return fresh;
  }

  /** @throws if neither an answer nor the end of the connection arrives in time */
  async function fire(shot: Shot): Promise<Hit> {
    if (shot.alone || !socket || socket.destroyed || socket.readyState !== 'open') {
      if (!shot.alone) socket?.destroy();
      const fresh = await open();
      if (!shot.alone) socket = fresh;
      return exchange(fresh, shot);
    }
    const kept = socket;
    const hit = await exchange(kept, shot);
    // The service was closing the connection during the write, so this is not an answer.
    if (hit.status === undefined && hit.answer === '') {
      socket = await open();
      return exchange(socket, shot);
    }
    return hit;
  }

  function exchange(on: Socket, { bytes, alone }: Shot): Promise<Hit> {
    return new Promise((resolve, reject) => {
      let answer = '';
      const timer = setTimeout(() => {
        on.destroy();
        reject(new Error('no answer'));
      }, PATIENCE);
      const done = (keep: boolean) => {
        clearTimeout(timer);
        on.off('data', read).off('end', ended).off('close', ended);
        if (!keep) on.destroy();
        const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(lastOf(answer))?.[1] ?? Number.NaN);
        resolve({ ...(Number.isNaN(status) ? {} : { status }), answer });
      };
      const read = (chunk: Buffer) => {
        answer += chunk.toString('latin1');
        if (!alone && isWhole(lastOf(answer))) done(!/\r\nConnection: close/i.test(answer));
      };
      const ended = () => done(false);
      on.on('data', read).on('end', ended).on('close', ended);
      on.write(bytes);
      if (alone) on.end();
    });
  }

  return { fire, stop: () => socket?.destroy() };
}

export type Gun = ReturnType<typeof createGun>;

/** Removes provisional responses. */
function lastOf(answer: string): string {
  return answer.replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, '');
}

function isWhole(answer: string): boolean {
  const end = answer.indexOf('\r\n\r\n');
  if (end < 0) return false;
  const head = answer.slice(0, end);
  if (/^HTTP\/1\.1 (204|304)/.test(head)) return true;
  const length = /\r\nContent-Length: (\d+)/i.exec(head)?.[1];
  if (length !== undefined) return answer.length >= end + 4 + Number(length);
  return answer.endsWith('\r\n0\r\n\r\n');
}

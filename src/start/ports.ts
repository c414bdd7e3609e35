import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config.ts';
import { freePort, tryListen } from '../embedded/ports.ts';

/** The settings of the ports that the processes listen on, with the address of each. */
const listeners = [
  ['PORT', 'HOST'],
  ['BOARD_PORT', 'BOARD_HOST'],
  ['WORKER_PORT', 'WORKER_HOST'],
  ['SYNC_PORT', 'SYNC_HOST'],
] as const;

export type Ports = Pick<Config, (typeof listeners)[number][0]>;

/**
 * Chooses a free port where PORT or BOARD_PORT is 0, and sees to it that the others are free.
 * @param patience milliseconds in which the processes of a killed start may still let go of theirs.
 * @throws {Error} naming each setting whose port is taken, or that this user may not listen on.
 */
export async function claimPorts(config: Config, patience: number): Promise<Ports> {
  const end = Date.now() + patience;
  for (;;) {
    const problems = (
      await Promise.all(listeners.map(([port, host]) => problemOf(config, port, host)))
    ).filter((problem) => problem !== undefined);
    if (problems.length === 0) break;
    if (Date.now() > end) throw new Error(problems.join('; '));
    await sleep(50);
  }
  return {
    PORT: config.PORT || (await freePort(config.HOST)),
    BOARD_PORT: config.BOARD_PORT || (await freePort(config.BOARD_HOST)),
    // 0 stands for none here.
    WORKER_PORT: config.WORKER_PORT,
    SYNC_PORT: config.SYNC_PORT,
  };
}

type Listener = (typeof listeners)[number];

async function problemOf(
  config: Config,
  name: Listener[0],
  hostName: Listener[1],
): Promise<string | undefined> {
  const port = config[name];
  const host = config[hostName];
  if (port === 0) return undefined;
  const double = listeners.find(([other]) => other !== name && config[other] === port);
  if (double) return `${name} and ${double[0]} are both ${port}: set one of them to another port`;
  try {
    await tryListen(port, host);
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') {
      return `${name} ${port} is in use on ${host}: stop what listens there, or set ${name} to another port`;
    }
    return `${name} ${port} cannot be listened on at ${hostName} ${host}: ${code}`;
  }
}

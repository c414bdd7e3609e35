import { execFileSync } from 'node:child_process';
import { leaveBehind } from '../../test/setup/left-behind.ts';
import type { Sender } from '../../test/setup/proxy.ts';

/** A loopback address of which packets can vanish in one direction, without a reset. */
export interface LossyAddress {
  host: string;
  /** Drops all packets that clients send to the address, or that a store sends from it. */
  drop(sender: Sender): void;
  /** Ends `drop`. */
  heal(): void;
}

let created = 0;

/**
 * Creates an address whose packets are dropped by the kernel's traffic control. Requires root and the
 * programs `ip` and `tc` of iproute2.
 * @throws {Error} if this machine does not allow it
 */
export function createLossyAddress(): LossyAddress {
  const number = created++;
  const host = `127.${34 + number}.${(process.pid >> 8) & 0xff}.${process.pid & 0xff}`;
  const [sink, peer] = [`cut${process.pid}-${number}a`, `cut${process.pid}-${number}b`];
  const preference = String(1 + number + 8 * (process.pid % 4000));
  // Packets are redirected to a device without a reader. A filter that drops would report the loss to the sender.
  run('ip', 'link', 'add', sink, 'type', 'veth', 'peer', 'name', peer);
  leaveBehind(() => run('ip', 'link', 'delete', sink));
  for (const device of [sink, peer]) run('ip', 'link', 'set', device, 'up');
  openHook();
  let isDropping = false;

  function heal(): void {
    if (!isDropping) return;
    isDropping = false;
    run('tc', 'filter', 'delete', 'dev', 'lo', 'egress', 'pref', preference);
  }
  leaveBehind(heal);

  return {
    host,
    drop(sender) {
      heal();
      const match = ['match', 'ip', sender === 'client' ? 'dst' : 'src', `${host}/32`];
      const action = ['action', 'mirred', 'egress', 'redirect', 'dev', sink];
      const filter = ['filter', 'add', 'dev', 'lo', 'egress', 'pref', preference, 'protocol', 'ip', 'u32'];
      run('tc', ...filter, ...match, ...action);
      isDropping = true;
    },
    heal,
  };
}

/** Adds the hook for filters to the loopback device. It is removed when no filter is left. */
function openHook(): void {
  if (run('tc', 'qdisc', 'show', 'dev', 'lo').includes('clsact')) return;
  run('tc', 'qdisc', 'add', 'dev', 'lo', 'clsact');
  leaveBehind(() => {
    if (run('tc', 'filter', 'show', 'dev', 'lo', 'egress').trim() === '')
      run('tc', 'qdisc', 'delete', 'dev', 'lo', 'clsact');
  });
}

function run(program: string, ...arguments_: string[]): string {
  return execFileSync(program, arguments_, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

import { lookup } from 'node:dns/promises';
import { BlockList } from 'node:net';

export interface Address {
  host: string;
  port: number;
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8);
loopback.addAddress('::1', 'ipv6');

/**
 * Resolves the address of the service to an IP address.
 * @throws {Error} if the address is another machine and that is not allowed, or is not plain HTTP
 */
export async function resolveTarget(url: string, allowRemote: boolean): Promise<Address> {
  const { protocol, hostname, port } = new URL(url);
  if (protocol !== 'http:') throw new Error(`${url}: only http: is spoken here`);
  const { address, family } = await lookup(hostname.replace(/^\[|\]$/g, ''));
  if (!allowRemote && !loopback.check(address, family === 6 ? 'ipv6' : 'ipv4')) {
    throw new Error(`${hostname} is not this machine; --allow-remote sends load there all the same`);
  }
  return { host: address, port: Number(port || 80) };
}

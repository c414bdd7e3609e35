import { type LookupAddress, lookup as lookUp } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { SourceError } from './source.ts';

/** Which addresses a sync may connect to. */
export interface Reach {
  /** For connections: a name that leads to a refused address has no address. */
  lookup: LookupFunction;
  /** @throws {SourceError} `config` when the host is an address, and a refused one */
  requireAllowed(host: string): void;
}

/**
 * Judges addresses when the connection is made, so that a name that leads elsewhere by then is judged as well.
 * @param networks as SYNC_REFUSED_NETWORKS has them: CIDR, with commas between; or `none`
 */
export function createReach(networks: string): Reach {
  const refused = new BlockList();
  for (const network of networks === 'none' ? [] : networks.split(',')) {
    const [address, prefix] = network.trim().split('/') as [string, string];
    refused.addSubnet(address, Number(prefix), isIP(address) === 6 ? 'ipv6' : 'ipv4');
  }
  const isRefused = (address: string) => refused.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');

  function refusalOf(host: string, address: string): SourceError {
    const where = host === address ? address : `${host}, which is ${address},`;
    return new SourceError('config', `${where} is in a network that SYNC_REFUSED_NETWORKS names`);
  }

  return {
    lookup(host, options, callback) {
      lookUp(host, { ...options, all: true }, (error: Error | null, found: LookupAddress[]) => {
        if (error) return callback(error, '', 0);
        const allowed = found.filter(({ address }) => !isRefused(address));
        const [first] = allowed;
        if (!first) return callback(refusalOf(host, found[0]?.address ?? 'nowhere'), '', 0);
        if (options.all) callback(null, allowed);
        else callback(null, first.address, first.family);
      });
    },
    requireAllowed(host) {
      const address = host.replace(/^\[(.*)\]$/, '$1');
      if (isIP(address) !== 0 && isRefused(address)) throw refusalOf(address, address);
    },
  };
}

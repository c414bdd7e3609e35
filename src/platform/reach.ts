import { type LookupAddress, type LookupOptions, lookup as lookUp } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';

/**
 * Decides which addresses Penstock may connect to on behalf of users: sync sources, webhooks, callbacks,
 * buckets.
 */
export interface Reach {
  /**
   * Resolves names for connections. A name that resolves only to refused addresses counts as having no
   * address.
   */
  lookup: LookupFunction;
  /** @throws {RefusedAddress} if the host is a refused IP address, with or without brackets */
  requireAllowed(host: string): void;
  /**
   * Checks all addresses of a name. Use it for clients that resolve the name themselves and may connect to
   * any of its addresses.
   * @throws {RefusedAddress} if one of the addresses is refused, or the error of the resolver
   */
  requireWhollyAllowed(host: string): Promise<void>;
}

/**
 * Thrown for an address in a refused network. Only an operator can fix it. The message names the address and
 * the setting, and contains no secret.
 */
export class RefusedAddress extends Error {
  override name = 'RefusedAddress';
}

/** Settings that decide which addresses are refused. */
export interface AddressSettings {
  readonly DEPLOYMENT_FORM: 'embedded' | 'production';
  readonly REFUSED_NETWORKS: string;
  readonly ALLOWED_NETWORKS: string;
  readonly SYNC_REFUSED_NETWORKS: string;
}

/** Link-local networks, and addresses that provide credentials to cloud machines. */
const METADATA = [
  ...['169.254.0.0/16', 'fe80::/10', 'fd00:ec2::254/128', 'fd20:ce::254/128'],
  ...['100.100.100.200/32', '168.63.129.16/32', '192.0.0.192/32'],
].join(',');

/** Networks that are not public unicast addresses according to the IANA special-purpose registries. */
const PRIVATE = [
  // A public address by its number, but only reachable from Azure's own machines.
  '168.63.129.16/32',
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12'],
  ...['192.0.0.0/24', '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15'],
  ...['198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4'],
  ...['::/127', '64:ff9b:1::/48', '100::/64', '2001::/23', '2001:db8::/32', '3fff::/20', '5f00::/16'],
  ...['fc00::/7', 'fe80::/10', 'fec0::/10', 'ff00::/8'],
].join(',');

const WORDS: Readonly<Record<string, string>> = { none: '', metadata: METADATA, private: PRIVATE };

/**
 * Creates the rule for addresses that users of the API or of an account configure: webhooks, callbacks,
 * buckets.
 */
export function reachOf(settings: AddressSettings): Reach {
  const { DEPLOYMENT_FORM, REFUSED_NETWORKS, ALLOWED_NETWORKS } = settings;
  return createReach({
    refused: REFUSED_NETWORKS || (DEPLOYMENT_FORM === 'embedded' ? 'metadata' : 'private'),
    allowed: ALLOWED_NETWORKS,
    setting: 'REFUSED_NETWORKS',
  });
}

/**
 * Creates the rule for addresses that only the operator configures: sources of syncs and imports, the
 * archive, buckets of exports. SYNC_REFUSED_NETWORKS, if set, replaces REFUSED_NETWORKS.
 */
export function reachOfSources(settings: AddressSettings): Reach {
  const { SYNC_REFUSED_NETWORKS: refused, ALLOWED_NETWORKS: allowed } = settings;
  return refused ? createReach({ refused, allowed, setting: 'SYNC_REFUSED_NETWORKS' }) : reachOf(settings);
}

/** Resolves a name to all its addresses, with the callback of `dns.lookup`. */
type Resolver = (
  host: string,
  options: LookupOptions & { all: true },
  answer: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

/**
 * Comma-separated networks, for example 10.0.0.0/8, or keys of `WORDS`. `setting` is the name of the setting
 * in error messages.
 */
interface AddressRule {
  refused: string;
  allowed?: string;
  setting?: string;
}

/**
 * Creates a rule that checks addresses when a connection is made, so that a name whose address has changed
 * since is checked as well.
 * @param resolver by default the resolver of the system
 * @throws {Error} naming an entry that is not a network
 */
export function createReach(
  { refused, allowed = '', setting = 'REFUSED_NETWORKS' }: AddressRule,
  resolver: Resolver = lookUp,
): Reach {
  const [refusing, allowing] = [networksOf(refused), networksOf(allowed)];

  function isRefused(address: string): boolean {
    // An address that cannot be parsed is refused, because no later check would catch it.
    const forms = formsOf(address);
    return forms.length === 0 || forms.some((form) => holds(refusing, form) && !holds(allowing, form));
  }

  function refusalOf(host: string, address: string): RefusedAddress {
    const where = host === address ? address : `${host}, which is ${address},`;
    return new RefusedAddress(
      `${where} is in a network that ${setting} refuses; ALLOWED_NETWORKS has exceptions`,
    );
  }

  return {
    lookup(host, options, callback) {
      resolver(host, { ...options, all: true }, (error, addresses) => {
        if (error) return callback(error, '', 0);
        const reached = addresses.filter(({ address }) => !isRefused(address));
        const [first] = reached;
        if (!first) return callback(refusalOf(host, addresses[0]?.address ?? 'nowhere'), '', 0);
        if (options.all) callback(null, reached);
        else callback(null, first.address, first.family);
      });
    },
    requireAllowed(host) {
      const address = host.replace(/^\[(.*)\]$/, '$1');
      if (isIP(address) !== 0 && isRefused(address)) throw refusalOf(address, address);
    },
    async requireWhollyAllowed(host) {
      const addresses = await new Promise<LookupAddress[]>((resolve, reject) => {
        resolver(host, { all: true }, (error, all) => (error ? reject(error) : resolve(all)));
      });
      const refusedOne = addresses.find(({ address }) => isRefused(address));
      if (refusedOne) throw refusalOf(host, refusedOne.address);
    },
  };
}

/** @throws {Error} naming an entry that is not a network */
export function networksOf(list: string): BlockList {
  const networks = new BlockList();
  const named = list.split(',').flatMap((name) => (WORDS[name.trim()] ?? name).split(','));
  for (const network of named.map((name) => name.trim()).filter(Boolean)) {
    const [address = '', prefix] = network.split('/');
    try {
      networks.addSubnet(address, Number(prefix), isIP(address) === 6 ? 'ipv6' : 'ipv4');
    } catch (cause) {
      throw new Error(`${network} is not a network`, { cause });
    }
  }
  return networks;
}

function holds(networks: BlockList, address: string): boolean {
  return networks.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

/**
 * Returns the address and the IPv4 addresses that it embeds by a translation rule; an empty list if it is not
 * an address.
 */
function formsOf(address: string): string[] {
  const plain = address.replace(/%.*$/s, '');
  if (isIP(plain) === 4) return [plain];
  if (isIP(plain) !== 6) return [];
  const groups = groupsOf(plain);
  const beginsWith = (...start: number[]) => start.every((group, index) => groups[index] === group);
  const ipv4 = (at: number) =>
    [groups[at]!, groups[at + 1]!].flatMap((group) => [group >> 8, group & 255]).join('.');
  const zeros = [0, 0, 0, 0];
  const inner = [];
  // IPv4-compatible, IPv4-mapped and IPv4-translated addresses. The loopback and the unspecified address
  // embed no IPv4 address.
  if (beginsWith(...zeros, 0, 0) && groups[6] !== 0) inner.push(ipv4(6));
  if (beginsWith(...zeros, 0, 0xffff) || beginsWith(...zeros, 0xffff, 0)) inner.push(ipv4(6));
  // NAT64, 6to4, ISATAP.
  if (beginsWith(0x64, 0xff9b, ...zeros)) inner.push(ipv4(6));
  if (beginsWith(0x2002)) inner.push(ipv4(1));
  if ((groups[4]! & 0xfdff) === 0 && groups[5] === 0x5efe) inner.push(ipv4(6));
  return [plain, ...inner];
}

/**
 * Returns the unit that rate limits by source count as one client: an IPv4 address, or the /64 network of an
 * IPv6 address, because one client can use any address in such a network.
 */
export function sourceOf(address: string): string {
  const plain = address.replace(/%.*$/s, '');
  if (isIP(plain) !== 6) return plain;
  const groups = groupsOf(plain);
  const isMapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff;
  return isMapped
    ? formsOf(plain)[1]!
    : groups
        .slice(0, 4)
        .map((group) => group.toString(16))
        .join(':');
}

/** @param address IPv6 address in any notation */
function groupsOf(address: string): number[] {
  const { hostname } = new URL(`http://[${address}]/`);
  const [before, after] = hostname
    .slice(1, -1)
    .split('::')
    .map((half) => half.split(':').filter(Boolean));
  const tail = after ?? [];
  const gap = Array.from({ length: 8 - before!.length - tail.length }, () => '0');
  return [...before!, ...gap, ...tail].map((group) => Number.parseInt(group, 16));
}

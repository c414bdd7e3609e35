import { isIPv6 } from 'node:net';

/** Requests that an address may send at once, and per second in the long run. */
const OF_ONE = { burst: 200, perSecond: 20 };

/** Requests of all addresses together. */
const OF_ALL = { burst: 1000, perSecond: 300 };

/** Maximum number of remembered addresses. The one that was seen longest ago is dropped first. */
const MAX_ADDRESSES = 10_000;

interface Bucket {
  tokens: number;
  /** Milliseconds of `performance.now()` at which the tokens were counted. */
  at: number;
}

/** Token buckets for endpoints without a key: one for each address, and one for all of them together. */
export class PublicLimit {
  readonly #buckets = new Map<string, Bucket>();
  readonly #all: Bucket = { tokens: OF_ALL.burst, at: 0 };

  /**
   * Takes tokens.
   * @param address of the caller; absent: unknown
   * @param cost number of tokens
   * @returns seconds after which the request is possible; 0 if it is possible now
   */
  take(address: string | undefined, cost = 1, now = performance.now()): number {
    const name = networkOf(address);
    const bucket = this.#buckets.get(name) ?? { tokens: OF_ONE.burst, at: now };
    this.#buckets.delete(name);
    this.#buckets.set(name, bucket);
    if (this.#buckets.size > MAX_ADDRESSES) this.#buckets.delete(this.#buckets.keys().next().value!);
    refill(bucket, OF_ONE, now);
    refill(this.#all, OF_ALL, now);
    const wait = Math.max(
      (cost - bucket.tokens) / OF_ONE.perSecond,
      (cost - this.#all.tokens) / OF_ALL.perSecond,
    );
    if (wait > 0) return Math.max(1, Math.ceil(wait));
    bucket.tokens -= cost;
    this.#all.tokens -= cost;
    return 0;
  }
}

function refill(bucket: Bucket, { burst, perSecond }: typeof OF_ONE, now: number): void {
  bucket.tokens = Math.min(burst, bucket.tokens + ((now - bucket.at) / 1000) * perSecond);
  bucket.at = now;
}

/** An IPv4 address, or the /64 network of an IPv6 address, which usually is one customer. */
function networkOf(address = ''): string {
  if (!isIPv6(address) || address.toLowerCase().startsWith('::ffff:')) return address;
  const [head = '', tail] = address.split('::');
  const groups = head.split(':').filter(Boolean);
  const missing = tail === undefined ? 0 : 8 - groups.length - tail.split(':').filter(Boolean).length;
  const all = [...groups, ...Array(missing).fill('0'), ...(tail ?? '').split(':').filter(Boolean)];
  return all.slice(0, 4).join(':');
}

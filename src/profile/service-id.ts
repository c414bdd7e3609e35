import { randomFillSync } from 'node:crypto';

const pool = Buffer.alloc(6 * 1024);
let used = pool.length;

/**
 * A new profile id: a UUIDv7 of which only the first 48 random bits are random, so that 24 hex digits name it
 * without loss: 12 of the time, 12 of the random part.
 *
 * @param now epoch milliseconds
 */
export function newProfileId(now: number): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const random = pool.toString('hex', used, used + 6);
  used += 6;
  return toProfileId(now.toString(16).padStart(12, '0') + random);
}

/** The UUID of a service id (24 lower-case hex digits). */
export function toProfileId(serviceId: string): string {
  const time = serviceId.slice(0, 12);
  const random = serviceId.slice(12);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(0, 3)}-8${random.slice(3, 6)}-${random.slice(6)}000000`;
}

/** The service id of a profile's UUID. */
export function toServiceId(profileId: string): string {
  const hex = profileId.replaceAll('-', '');
  return hex.slice(0, 12) + hex.slice(13, 16) + hex.slice(17, 20) + hex.slice(20, 26);
}

/** SQL of a UUIDv7 of an instant; Postgres has such a function of its own from 18 on. */
export function uuidAt(instant: string): string {
  return `overlay(gen_random_uuid()::text placing left(uuid_v7_floor(${instant})::text, 15) from 1)::uuid`;
}

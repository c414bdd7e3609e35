/** Returns SQL for a UUIDv7 with the given time. Postgres has such a function from version 18 on. */
export function uuidAt(instant: string): string {
  return `overlay(gen_random_uuid()::text placing left(uuid_v7_floor(${instant})::text, 15) from 1)::uuid`;
}

import type { Json } from '../../../src/profile/json.ts';

export const QUEUE = 'naive-track';

export type NaiveKind = 'attributes' | 'events' | 'purchases';

/** A job with one object of a request, as the client sent it. */
export interface NaiveJob {
  kind: NaiveKind;
  userId: string;
  object: Record<string, Json>;
}

/** Returns the settings that both processes read from the environment. */
export function naiveSettings() {
  const { PORT, API_KEY, REDIS_URL, DATABASE_URL } = process.env;
  return { port: Number(PORT), apiKey: API_KEY!, redisUrl: REDIS_URL!, databaseUrl: DATABASE_URL! };
}

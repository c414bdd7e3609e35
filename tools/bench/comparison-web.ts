import express from 'express';
import type { Json } from '../../src/profile/json.ts';

export type TrackKind = 'attributes' | 'events' | 'purchases';

/** An object of a request, as the client sent it. */
export interface TrackObject {
  kind: TrackKind;
  userId: string;
  object: Record<string, Json>;
}

const kinds: readonly TrackKind[] = ['attributes', 'events', 'purchases'];

/** Returns the settings that the processes of a comparison read from the environment. */
export function comparisonSettings() {
  const { PORT, API_KEY, REDIS_URL, DATABASE_URL, QUEUE } = process.env;
  return {
    ...{ port: Number(PORT), apiKey: API_KEY!, redisUrl: REDIS_URL!, databaseUrl: DATABASE_URL! },
    queue: QUEUE!,
  };
}

/**
 * Serves `POST /users/track` with Express, its JSON parser and a few manual checks.
 *
 * @param add queues the valid objects of a request; resolves when Redis has them
 */
export function serveTrack(
  { port, apiKey }: { port: number; apiKey: string },
  add: (objects: TrackObject[]) => Promise<unknown>,
): void {
  const app = express();
  app.use(express.json({ limit: '4mb' }));
  app.get('/healthz', (_request, response) => {
    response.json({ message: 'alive' });
  });
  app.post('/users/track', async (request, response) => {
    if (request.headers.authorization !== `Bearer ${apiKey}`) {
      response.status(401).json({ message: 'Invalid API Key' });
      return;
    }
    const valid: TrackObject[] = [];
    const errors: { type: string; input_array: string; index: number }[] = [];
    const counts: Record<string, number> = {};
    for (const kind of kinds) {
      const objects: Record<string, Json>[] = request.body[kind] ?? [];
      objects.forEach((object, index) => {
        const wrong = findFault(kind, object);
        if (wrong) {
          errors.push({ type: wrong, input_array: kind, index });
          return;
        }
        valid.push({ kind, userId: userOf(object)!, object });
        counts[`${kind}_processed`] = (counts[`${kind}_processed`] ?? 0) + 1;
      });
    }
    if (valid.length === 0) {
      response.status(400).json({ message: 'Valid data must be provided', errors });
      return;
    }
    await add(valid);
    response.status(201).json({ ...counts, message: 'success', ...(errors.length > 0 && { errors }) });
  });
  app.listen(port, '127.0.0.1');
}

function userOf(object: Record<string, Json>): string | undefined {
  if (typeof object.external_id === 'string') return object.external_id;
  const alias = object.user_alias as { alias_label?: string; alias_name?: string } | undefined;
  return alias?.alias_name && `${alias.alias_label}:${alias.alias_name}`;
}

/** Validates just enough to keep the worker from failing. */
function findFault(kind: TrackKind, object: Record<string, Json>): string | undefined {
  if (!userOf(object)) return 'an identifier is required';
  if (kind === 'attributes') {
    const { email } = object;
    return email !== undefined && !String(email).includes('@') ? "'email' is not valid" : undefined;
  }
  if (Number.isNaN(Date.parse(String(object.time)))) return "'time' is not valid";
  if (kind === 'events') return typeof object.name === 'string' ? undefined : "'name' is required";
  if (!/^[A-Z]{3}$/.test(String(object.currency))) return "'currency' is not valid";
  return Number(object.quantity ?? 1) > 100 ? "'quantity' is not valid" : undefined;
}

/**
 * The web process of the naive pipeline, for comparison: Express with its JSON parser, a few manual checks,
 * and one job per object.
 */
import { Queue } from 'bullmq';
import express from 'express';
import type { Json } from '../../../src/profile/json.ts';
import { type NaiveJob, type NaiveKind, naiveSettings, QUEUE } from './contract.ts';

const kinds: readonly NaiveKind[] = ['attributes', 'events', 'purchases'];

const settings = naiveSettings();
const queue = new Queue<NaiveJob>(QUEUE, { connection: { url: settings.redisUrl } });

const app = express();
app.use(express.json({ limit: '4mb' }));

app.get('/healthz', (_request, response) => {
  response.json({ message: 'alive' });
});

app.post('/users/track', async (request, response) => {
  if (request.headers.authorization !== `Bearer ${settings.apiKey}`) {
    response.status(401).json({ message: 'Invalid API Key' });
    return;
  }
  const jobs: { name: string; data: NaiveJob; opts: object }[] = [];
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
      const opts = { attempts: 5, removeOnComplete: true };
      jobs.push({ name: kind, data: { kind, userId: userOf(object)!, object }, opts });
      counts[`${kind}_processed`] = (counts[`${kind}_processed`] ?? 0) + 1;
    });
  }
  if (jobs.length === 0) {
    response.status(400).json({ message: 'Valid data must be provided', errors });
    return;
  }
  await queue.addBulk(jobs);
  response.status(201).json({ ...counts, message: 'success', ...(errors.length > 0 && { errors }) });
});

app.listen(settings.port, '127.0.0.1');

function userOf(object: Record<string, Json>): string | undefined {
  if (typeof object.external_id === 'string') return object.external_id;
  const alias = object.user_alias as { alias_label?: string; alias_name?: string } | undefined;
  return alias?.alias_name && `${alias.alias_label}:${alias.alias_name}`;
}

/** Validates just enough to keep the worker from failing. */
function findFault(kind: NaiveKind, object: Record<string, Json>): string | undefined {
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

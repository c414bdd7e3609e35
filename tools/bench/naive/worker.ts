/**
 * The worker of the naive pipeline, for comparison: fifty concurrent jobs, each with an upsert and a create.
 */
import { type Job, Worker } from 'bullmq';
import { comparisonSettings, type TrackObject } from '../comparison-web.ts';
import { openNaiveClient } from './client.ts';

const CONCURRENCY = 50;
/** More connections made it slower on 2 cores. */
const CONNECTIONS = 20;

const settings = comparisonSettings();
const prisma = openNaiveClient(settings.databaseUrl, CONNECTIONS);

async function apply({ data: { kind, userId, object } }: Job<TrackObject>): Promise<void> {
  if (kind === 'attributes') {
    const { external_id: _id, user_alias: _alias, ...attributes } = object;
    await prisma.profile.upsert({
      where: { userId },
      create: { userId, attributes, updates: 1 },
      update: { attributes, updates: { increment: 1 } },
      select: { id: true },
    });
    return;
  }
  const profile = await prisma.profile.upsert({
    where: { userId },
    create: { userId },
    update: {},
    select: { id: true },
  });
  const { time, properties } = object;
  const common = { profileId: profile.id, time: new Date(String(time)), properties };
  if (kind === 'events') {
    await prisma.event.create({ data: { ...common, name: object.name } });
    return;
  }
  const { product_id: productId, currency, price, quantity = 1 } = object;
  await prisma.purchase.create({ data: { ...common, productId, currency, price, quantity } });
}

new Worker<TrackObject>(settings.queue, apply, {
  connection: { url: settings.redisUrl },
  concurrency: CONCURRENCY,
});

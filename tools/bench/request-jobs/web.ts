/**
 * The web process of the pipeline with a job per request, for comparison: Express with its JSON parser, a few
 * manual checks, and one job that holds the valid objects.
 */
import { randomUUID } from 'node:crypto';
import { Queue } from 'bullmq';
import { comparisonSettings, serveTrack } from '../comparison-web.ts';
import type { RequestJob } from './worker.ts';

const settings = comparisonSettings();
const queue = new Queue<RequestJob>(settings.queue, { connection: { url: settings.redisUrl } });
serveTrack(settings, (objects) =>
  queue.add('track', { id: randomUUID(), objects }, { attempts: 5, removeOnComplete: true }),
);

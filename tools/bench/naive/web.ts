/**
 * The web process of the naive pipeline, for comparison: Express with its JSON parser, a few manual checks,
 * and one job per object.
 */
import { Queue } from 'bullmq';
import { comparisonSettings, serveTrack, type TrackObject } from '../comparison-web.ts';

const settings = comparisonSettings();
const queue = new Queue<TrackObject>(settings.queue, { connection: { url: settings.redisUrl } });
const opts = { attempts: 5, removeOnComplete: true };
serveTrack(settings, (objects) =>
  queue.addBulk(objects.map((data) => ({ name: data.kind as string, data, opts }))),
);

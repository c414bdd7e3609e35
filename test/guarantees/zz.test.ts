import { test } from 'vitest';
import { settled } from './effects.ts';
import { busyWorker, startFleet } from './fleet.ts';
import { startTraffic } from './traffic.ts';
test.each(['redis','postgres'] as const)('x %s', async (b) => {
  const t0 = Date.now();
  const say = (...a: unknown[]) => process.stderr.write(`${Date.now() - t0} ${a.join(' ')}\n`);
  const fleet = await startFleet(b);
  say('ready');
  const traffic = startTraffic(fleet);
  const timer = setInterval(() => say('acks', traffic.acknowledged(), 'log', traffic.log.length, JSON.stringify(traffic.log.findLast((l) => l.status !== 201)?.body ?? traffic.log.findLast((l) => l.status !== 201))), 1000);
  try {
  await traffic.more(100); say('100');
  for (let i = 0; i < 3; i++) {
  const v = await busyWorker(fleet); say('busy', v.name);
  await fleet.end(v); say('killed');
  await settled(fleet, [...traffic.log], 10000); say('settled');
  await fleet.startWorker(); say('started');
  }
  await traffic.stop();
  await settled(fleet, [...traffic.log], 10000); say('settled all');
  for (const m of [...fleet.edges, ...fleet.workers]) say(m.name, JSON.stringify(m.log).slice(0, 1500));
  } finally { clearInterval(timer); await traffic.stop(); await fleet.stop(); }
}, 60000);

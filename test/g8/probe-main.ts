import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Figures, ProbeOptions } from './figures.ts';

/** Milliseconds between two events, two reads of the events, and two requests to /healthz of each process. */
const EVENTS = 100;
const LOOKS = 25;
const PAGES = 100;

/** Program of the probe: sends few events from another workspace, reads them back, and polls all processes. */
const options: ProbeOptions = JSON.parse(process.env.PROBE!);
const { port, key, users, processes } = options;
const base = `http://127.0.0.1:${port}`;
const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
const histogram = monitorEventLoopDelay({ resolution: 10 });
histogram.enable();

/** Accepted events that are not readable yet, by lane, oldest first. */
const waiting: { time: number; since: number }[][] = users.map(() => []);
/** Time of the latest readable event, by lane. */
const read = users.map(() => 0);
let refusedSince: number | undefined;
let figures = nothing();

function nothing(): Figures {
  const zeros = Object.fromEntries(Object.keys(processes).map((name) => [name, 0]));
  return {
    lanes: users.map(() => 0),
    loops: { ...zeros },
    pages: { ...zeros },
    answer: 0,
    refused: 0,
    bystander: 0,
  };
}

/** Time of the latest event. Each event gets a unique millisecond. */
let last = 0;
async function send(): Promise<void> {
  const time = Math.max(Date.now(), last + 1);
  last = time;
  const started = performance.now();
  const events = users.map((external_id) => ({
    external_id,
    name: 'probe',
    time: new Date(time).toISOString(),
  }));
  const status = await fetch(`${base}/users/track`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ events }),
  })
    .then(async (response) => {
      await response.arrayBuffer();
      return response.status;
    })
    .catch(() => 0);
  const now = performance.now();
  figures.answer = Math.max(figures.answer, now - started);
  if (status === 201) {
    if (refusedSince !== undefined) figures.refused = Math.max(figures.refused, now - refusedSince);
    refusedSince = undefined;
    for (const lane of waiting) lane.push({ time, since: now });
  } else refusedSince ??= started;
}

async function measure(): Promise<void> {
  if (waiting.every((lane) => lane.length === 0)) return;
  const body = JSON.stringify({ external_ids: users, fields_to_export: ['external_id', 'custom_events'] });
  const response = await fetch(`${base}/users/export/ids`, { method: 'POST', headers, body });
  const answer = (await response.json()) as {
    users?: { external_id: string; custom_events?: { last: string }[] }[];
  };
  const now = performance.now();
  for (const { external_id, custom_events } of answer.users ?? []) {
    const lane = users.indexOf(external_id);
    const until = Date.parse(custom_events?.[0]?.last ?? '1970-01-01');
    read[lane] = Math.max(read[lane]!, until);
    while (waiting[lane]![0] && waiting[lane]![0].time <= until) {
      const { since } = waiting[lane]!.shift()!;
      figures.lanes[lane] = Math.max(figures.lanes[lane]!, now - since);
    }
  }
}

async function request(name: string): Promise<void> {
  const started = performance.now();
  await (await fetch(`http://127.0.0.1:${processes[name]}/healthz`)).arrayBuffer();
  figures.pages[name] = Math.max(figures.pages[name]!, performance.now() - started);
}

/** Runs scrapes one after the other. Each scrape resets the lag on the page, so all results must be counted. */
let scraped: Promise<void> = Promise.resolve();
function scrape(): Promise<void> {
  scraped = scraped.then(readLags, readLags);
  return scraped;
}

async function readLags(): Promise<void> {
  for (const [name, at] of Object.entries(processes)) {
    const page = await (await fetch(`http://127.0.0.1:${at}/metrics`)).text();
    const seconds = Number(/^nodejs_eventloop_lag_max_seconds (\S+)/m.exec(page)?.[1]);
    figures.loops[name] = Math.max(figures.loops[name]!, seconds * 1000);
  }
}

async function every(milliseconds: number, work: () => Promise<void>): Promise<void> {
  for (;;) {
    await work().catch(() => {});
    await sleep(milliseconds);
  }
}

/** Responds once an event sent after the message is readable in every lane: all earlier jobs are applied by then. */
process.on('message', async () => {
  const sentAt = Date.now();
  const end = sentAt + 300_000;
  while (Date.now() < end && !read.every((time) => time > sentAt)) await sleep(10);
  await scrape();
  const now = performance.now();
  waiting.forEach((lane, index) => {
    if (lane[0]) figures.lanes[index] = Math.max(figures.lanes[index]!, now - lane[0].since);
  });
  if (refusedSince !== undefined) figures.refused = Math.max(figures.refused, now - refusedSince);
  process.send!({ ...figures, bystander: histogram.max / 1e6 });
  histogram.reset();
  figures = nothing();
});
process.on('disconnect', () => process.exit());

// Sends the next events even if the previous request has no response yet.
setInterval(() => void send(), EVENTS);
void every(LOOKS, measure);
for (const name of Object.keys(processes)) void every(PAGES, () => request(name));
void every(2000, scrape);
process.send!('started');

import type { Request, Response } from 'express';
import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import type { Viewer } from './access.ts';
import { type PageServices, Sorry, sendSorry, viewerOf } from './console.ts';
import type { RangeName } from './history.ts';
import { healthParts } from './pages/health.ts';
import { charts, rangeOf } from './pages/history.ts';

/** Milliseconds between two looks at the fleet, which all streams share. */
const LOOK_MS = 1000;

/** Between two looks at charts: a row a minute comes. */
const CHART_MS = 20_000;

/** Between two looks at who may still have a stream; a comment shows proxies that it is alive. */
const CHECK_MS = 10_000;

/** For one look at a session, when it fails. */
const PATIENCE_MS = 1000;

/** A stream's life, after which the browser asks for another, and is asked who it is. */
const LIFE_MS = 300_000;

/** After which a browser whose stream has ended asks again. */
const RETRY_MS = 2000;

/** Streams of one account, and of all. An open window that is seen has one. */
const MOST_OF_ONE = 8;
const MOST = 64;

/** Parts of the page, by name. */
type Parts = Record<string, string>;

interface Stream {
  response: Response;
  /** Of the account; BOARD_USER has one for all who know it. */
  owner: string;
  range: RangeName;
  endsAt: number;
  /** Whether it has to be sent everything: it has had nothing yet, or could not take what came. */
  isWhole: boolean;
  /** Who it is now; nothing: nobody any more. */
  again(): Promise<Viewer | undefined>;
}

export interface LiveOptions extends Pick<PageServices, 'fleet' | 'connection' | 'database'> {
  log: Log;
  /** Milliseconds, where they are other ones. */
  checkMs?: number;
  lifeMs?: number;
}

/**
 * The health page as server-sent events: those of its parts that have changed, as markup. One look at the fleet serves
 * all streams, and nobody looks while there is none.
 */
export function createLive({
  fleet,
  connection,
  database: { pool },
  log,
  checkMs = CHECK_MS,
  lifeMs = LIFE_MS,
}: LiveOptions): Service & { serve(request: Request, response: Response): void; count(): number } {
  const streams = new Set<Stream>();
  let known: Parts = {};
  const drawn = new Map<RangeName, { at: number; text: string }>();

  async function chartsOf(range: RangeName): Promise<string> {
    const last = drawn.get(range);
    if (last && performance.now() - last.at < CHART_MS) return last.text;
    const { text } = await charts(pool, { range });
    drawn.set(range, { at: performance.now(), text });
    return text;
  }

  async function look(): Promise<void> {
    if (streams.size === 0) return;
    const now = await fleet.look();
    const parts = Object.entries(healthParts(now, connection.kind)).map(([name, { text }]) => [name, text]);
    const all: Parts = Object.fromEntries(parts);
    for (const range of now.processes ? new Set([...streams].map((one) => one.range)) : [])
      all[`charts ${range}`] = await chartsOf(range);
    const changed = Object.fromEntries(Object.entries(all).filter(([name, text]) => known[name] !== text));
    known = all;
    for (const stream of streams) {
      if (stream.response.writableNeedDrain) stream.isWhole = true;
      else {
        send(stream, stream.isWhole ? all : changed);
        stream.isWhole = false;
      }
    }
  }

  function send({ response, range }: Stream, parts: Parts): void {
    const own = Object.entries(parts).flatMap(([name, text]) =>
      name === `charts ${range}` ? [['charts', text]] : name.startsWith('charts ') ? [] : [[name, text]],
    );
    if (own.length > 0) response.write(`event: parts\ndata: ${JSON.stringify(Object.fromEntries(own))}\n\n`);
  }

  function end(stream: Stream): void {
    streams.delete(stream);
    // Who takes nothing is not waited for.
    if (stream.response.writableNeedDrain) stream.response.destroy();
    else stream.response.end();
  }

  async function check(): Promise<void> {
    for (const stream of streams) {
      stream.response.write(':\n\n');
      if (performance.now() >= stream.endsAt) end(stream);
    }
    for (const stream of streams) {
      // While sessions cannot be looked up streams go on, and with them the sentence that says so.
      const begun = performance.now();
      const still = await stream.again().catch(() => 'unknown' as const);
      // A store that hangs is not asked for each of them.
      if (still === 'unknown' && performance.now() - begun > PATIENCE_MS) return;
      if (still || !streams.has(stream)) continue;
      stream.response.write('event: end\ndata:\n\n');
      end(stream);
    }
  }

  const failed = (error: unknown) => log.warn({ err: error }, 'live updates of the health page failed');
  const looks = poll(LOOK_MS, look, failed);
  const checks = poll(checkMs, check, failed);

  return {
    name: 'live health',
    count: () => streams.size,

    /** Answers until the reader leaves, has lost the session, or some minutes are over. */
    serve(request, response) {
      const { accountId: owner = '' } = viewerOf(response);
      const own = [...streams].filter((one) => one.owner === owner).length;
      if (own >= MOST_OF_ONE || streams.size >= MOST) {
        response.set('Retry-After', '30');
        const sorry = new Sorry(
          503,
          'Too many windows receive live updates. Close one, or reload this page manually.',
        );
        return sendSorry(request, response, sorry);
      }
      response.set({
        'Content-Type': 'text/event-stream; charset=utf-8',
        'Cache-Control': 'no-store',
        // No proxy keeps it back, and no connection outlives it.
        'X-Accel-Buffering': 'no',
        Connection: 'close',
      });
      if (request.method === 'HEAD') return void response.end();
      const { range } = request.query;
      const stream: Stream = {
        ...{ response, owner, endsAt: performance.now() + lifeMs, isWhole: true },
        range: rangeOf(typeof range === 'string' ? range : ''),
        again: response.locals.again,
      };
      streams.add(stream);
      response.on('close', () => streams.delete(stream));
      response.write(`retry: ${RETRY_MS}\n\n`);
      void looks.now();
    },

    async stop() {
      for (const stream of streams) end(stream);
      await Promise.all([looks.stop(), checks.stop()]);
    },
  };
}

export type Live = ReturnType<typeof createLive>;

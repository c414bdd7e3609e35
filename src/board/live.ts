import type { Request, Response } from 'express';
import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import type { Viewer } from './access.ts';
import { problemBadge } from './badges.ts';
import { PageError, type PageServices, sendErrorPage, viewerOf } from './console.ts';
import type { RangeName } from './history.ts';
import { menuBadge } from './layout.ts';
import { healthParts } from './pages/health.ts';
import { charts, rangeOf } from './pages/history.ts';
import { maySee, problemList } from './problems.ts';

/** Milliseconds between two readings of the fleet. All streams share them. */
const LOOK_MS = 1000;

/** Milliseconds for which rendered charts are reused. The history gets one row per minute. */
const CHART_MS = 20_000;

/**
 * Milliseconds between two session checks of all streams. Each check also sends a comment, which keeps proxies from
 * closing the connection.
 */
const CHECK_MS = 10_000;

/** If a failed session check took longer than this, the other streams are not checked until the next interval. */
const PATIENCE_MS = 1000;

/** Maximum duration of a stream in milliseconds. The browser then reconnects and authenticates again. */
const LIFE_MS = 300_000;

/** Milliseconds after which a browser reconnects when a stream has ended. */
const RETRY_MS = 2000;

/** Maximum number of streams per account and in total. Each visible window has one stream. */
const MAX_STREAMS_PER_ACCOUNT = 8;
const MAX_STREAMS = 64;

/** HTML of page parts, by name. */
type Parts = Record<string, string>;

interface Stream {
  response: Response;
  /** Account id; empty for BOARD_USER, so that all its sessions share one limit. */
  owner: string;
  range: RangeName;
  /** The viewer at the last session check. */
  viewer: Viewer;
  /** The problem list that was sent last; it depends on the viewer. */
  problems: string;
  endsAt: number;
  /** Whether to send all parts: the stream is new, or the client was too slow for the last update. */
  isWhole: boolean;
  /** Loads the viewer again; undefined if the session has ended. */
  again(): Promise<Viewer | undefined>;
}

interface LiveOptions extends Pick<PageServices, 'fleet' | 'connection' | 'database' | 'lacking'> {
  log: Log;
  /** Intervals in milliseconds, if they differ from the defaults. */
  checkMs?: number;
  lifeMs?: number;
}

/**
 * Sends the parts of the health page that have changed as server-sent events with HTML. All streams share one reading
 * of the fleet per interval, and without streams the fleet is not read.
 */
export function createLive({
  fleet,
  connection,
  database: { pool },
  lacking,
  log,
  checkMs = CHECK_MS,
  lifeMs = LIFE_MS,
}: LiveOptions): Service & { serve(request: Request, response: Response): void; count(): number } {
  const streams = new Set<Stream>();
  let lastParts: Parts = {};
  const isAway = () => lacking().some(({ name }) => name === 'postgres');
  const drawn = new Map<RangeName, { at: number; text: string }>();

  async function chartsOf(range: RangeName): Promise<string> {
    const last = drawn.get(range);
    if (last && performance.now() - last.at < CHART_MS) return last.text;
    const { text } = await charts(pool, { range, isAway });
    drawn.set(range, { at: performance.now(), text });
    return text;
  }

  async function update(): Promise<void> {
    if (streams.size === 0) return;
    const now = await fleet.read();
    const parts = Object.entries(healthParts(now, connection.kind)).map(([name, { text }]) => [name, text]);
    const all: Parts = Object.fromEntries(parts);
    for (const range of now.processes ? new Set([...streams].map((one) => one.range)) : [])
      all[`charts ${range}`] = await chartsOf(range);
    const changed = Object.fromEntries(
      Object.entries(all).filter(([name, text]) => lastParts[name] !== text),
    );
    lastParts = all;
    for (const stream of streams) {
      if (stream.response.writableNeedDrain) stream.isWhole = true;
      else {
        const problems = problemList(now.problems, stream.viewer).text;
        const isChanged = stream.isWhole || problems !== stream.problems;
        const seen = problemBadge(now.problems.filter((one) => maySee(stream.viewer, one)));
        const listed = { problems, problem_count: seen ? menuBadge(seen).text : '' };
        send(stream, { ...(stream.isWhole ? all : changed), ...(isChanged && listed) });
        stream.isWhole = false;
        stream.problems = problems;
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
    // A client that does not read would delay a regular end indefinitely.
    if (stream.response.writableNeedDrain) stream.response.destroy();
    else stream.response.end();
  }

  async function check(): Promise<void> {
    for (const stream of streams) {
      stream.response.write(':\n\n');
      if (performance.now() >= stream.endsAt) end(stream);
    }
    for (const stream of streams) {
      // If sessions cannot be looked up, streams continue, so that the page can show the outage.
      const begun = performance.now();
      const still = await stream.again().catch(() => 'unknown' as const);
      // If the store hangs, do not query it once per stream.
      if (still === 'unknown' && performance.now() - begun > PATIENCE_MS) return;
      if (still && still !== 'unknown') stream.viewer = still;
      if (still || !streams.has(stream)) continue;
      stream.response.write('event: end\ndata:\n\n');
      end(stream);
    }
  }

  const failed = (error: unknown) => log.warn({ err: error }, 'live updates of the health page failed');
  const poller = poll(LOOK_MS, update, failed);
  const checks = poll(checkMs, check, failed);

  return {
    name: 'live health',
    count: () => streams.size,

    /** Streams until the client disconnects, the session ends, or the maximum duration is over. */
    serve(request, response) {
      const viewer = viewerOf(response);
      const { accountId: owner = '' } = viewer;
      const own = [...streams].filter((one) => one.owner === owner).length;
      if (own >= MAX_STREAMS_PER_ACCOUNT || streams.size >= MAX_STREAMS) {
        response.set('Retry-After', '30');
        const sorry = new PageError(
          503,
          'Too many windows receive live updates. Close one, or reload this page manually.',
        );
        return sendErrorPage(request, response, sorry);
      }
      response.set({
        'Content-Type': 'text/event-stream; charset=utf-8',
        'Cache-Control': 'no-store',
        // Proxies must not buffer the stream, and the connection must not be reused.
        'X-Accel-Buffering': 'no',
        Connection: 'close',
      });
      if (request.method === 'HEAD') return void response.end();
      const { range } = request.query;
      const stream: Stream = {
        ...{ response, owner, viewer, problems: '', endsAt: performance.now() + lifeMs, isWhole: true },
        range: rangeOf(typeof range === 'string' ? range : ''),
        again: response.locals.again,
      };
      streams.add(stream);
      response.on('close', () => streams.delete(stream));
      response.write(`retry: ${RETRY_MS}\n\n`);
      void poller.now();
    },

    async stop() {
      for (const stream of streams) end(stream);
      await Promise.all([poller.stop(), checks.stop()]);
    },
  };
}

export type Live = ReturnType<typeof createLive>;

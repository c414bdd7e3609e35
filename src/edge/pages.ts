import type { IncomingMessage } from 'node:http';
import { basename, dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Express, Request, Response } from 'express';
import helmet from 'helmet';
import type { Registry } from 'prom-client';
import type { Site } from '../docs/site.ts';
import type { ErrorName } from '../errors.ts';
import { fileOfLink, isBucket, openExportFiles } from '../export/segment-export.ts';
import { ObjectStoreError } from '../object-store/object-store.ts';
import type { DownloadSettings } from '../operations/operation.ts';
import { isSignedDownload, readDownload } from '../operations/users.export.segment.ts';
import type { Config } from '../platform/config.ts';
import { isLeaving, reachable, within } from '../platform/lifecycle.ts';
import { checkReadiness } from '../processes/dependencies.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { printedLoss } from '../queue/loss.ts';
import type { Oldest } from '../queue/oldest.ts';
import type { Pool } from '../store/database.ts';
import type { QueueLoss } from '../store/installation.ts';
import { findLinkKey } from '../store/preference-centers.ts';
import { listProcesses, SILENT_SECONDS } from '../store/processes.ts';
import { findDownload } from '../store/segment-exports.ts';
import { addPage, type PageLocals, refuse } from './app.ts';
import { createRequestSemaphore, type LoadShedding } from './load-shedding.ts';
import type { OpenApiDocument } from './openapi.ts';
import type { EdgeServices } from './services.ts';

/** Milliseconds for the list of the fleet's processes. */
const PATIENCE_MS = 1000;

interface HealthSources {
  pool: Pool;
  connection: QueueConnection;
  /** Of the rate limits, where they live in a server that is not the queue's. */
  pingLimits?: (() => Promise<void>) | undefined;
  registry: Registry;
  /** Brings the numbers of the whole fleet up to date, as far as they can be read in time; never rejects. */
  refresh(): Promise<void>;
  /** Whether an Authorization header opens /metrics. */
  mayReadMetrics(header: string | undefined): boolean;
  mayReadTargets(request: IncomingMessage): boolean;
  /** Envelopes that wait too long are named: to take more requests is right all the same. */
  oldest: Pick<Oldest, 'tooOld' | 'standstill'>;
  /** Whether jobs that nobody takes leave the process ready. They are named in any case. */
  readyAtStandstill: boolean;
  /** What is refused past them makes the process not ready. */
  loadShedding: LoadShedding;
  /** What the queue has lost and nobody has confirmed. It makes nothing unready: what comes next is safe. */
  loss(): QueueLoss | undefined;
}

/**
 * /healthz: the process is alive. /readyz: it can take requests, or what is missing, by name, and its
 * high-water marks. /metrics:
 * Prometheus. The two last answer within about a second whatever is away. None of them leaves a log line.
 */
export function addHealthPages(app: Express, sources: HealthSources): void {
  addPage(app, '/healthz', (_request, response) => {
    response.json({ message: 'alive' });
  });

  addPage(app, '/readyz', async (_request, response) => {
    const missing = await checkReadiness(sources.pool, sources.connection, sources.pingLimits);
    const overload = sources.loadShedding.reason('queue');
    const stuck = sources.oldest.tooOld();
    const standstill = Math.round(sources.oldest.standstill());
    const moves = standstill === 0 || sources.readyAtStandstill;
    const leaving = isLeaving();
    const ready = missing.length === 0 && overload === undefined && moves && !leaving;
    const loss = sources.loss();
    response.status(ready ? 200 : 503).json({
      message: ready ? 'ready' : 'not ready',
      missing,
      ...(leaving && { leaving }),
      ...(overload && { overload }),
      ...(loss && { loss: printedLoss(loss) }),
      ...(stuck.length > 0 && { stuck }),
      ...(standstill > 0 && { standstill_seconds: standstill }),
      high_water: sources.loadShedding.levels(),
    });
  });

  addPage(app, '/metrics/targets', async (request, response) => {
    if (!sources.mayReadTargets(request)) {
      return refuse(response, 'metricsToken', { 'WWW-Authenticate': 'Bearer' });
    }
    response.json(await listTargets(sources.pool));
  });

  addPage(app, '/metrics', async (request, response) => {
    if (!sources.mayReadMetrics(request.headers.authorization)) {
      return refuse(response, 'metricsToken', { 'WWW-Authenticate': 'Bearer' });
    }
    await sources.refresh();
    response.type(sources.registry.contentType).send(await sources.registry.metrics());
  });
}

/**
 * The processes of the fleet in the form of Prometheus's `http_sd_configs`: those that have said a moment ago that they
 * are there, and have pages of their own.
 * @throws when Postgres does not answer: Prometheus keeps the list that it had
 */
async function listTargets(pool: Pool) {
  const all = await within(PATIENCE_MS, listProcesses(pool));
  return all
    .filter(({ address, silentSeconds }) => address !== null && silentSeconds < SILENT_SECONDS)
    .map(({ address, name, host }) => ({ targets: [address], labels: { process: name, host } }));
}

/** Nothing comes from anywhere but this server. No rule asks for https: TLS is the proxy's affair. */
const securityHeaders = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'"],
      // The icon of a page is an empty one.
      imgSrc: ["'self'", 'data:'],
      connectSrc: ["'self'"],
      baseUri: ["'none'"],
      formAction: ["'self'"],
      frameAncestors: ["'none'"],
    },
  },
  strictTransportSecurity: false,
});

/** Their path has their version. */
const FOR_EVER = 'public, max-age=31536000, immutable';
/** Asked for again each time, and answered with 304 while it is the same. */
const ASK_AGAIN = 'no-cache';

/** Each takes some milliseconds, and nobody has to show a key: of one process, so many a second. */
const SEARCHES_A_SECOND = 20;

const types: Record<string, string> = { css: 'text/css', js: 'text/javascript' };

/**
 * /openapi.json, and /docs for people: guides, the reference, and a search over both. A process that nobody asks for them
 * loads nothing of it.
 */
export function addDocsPages(app: Express, describe: () => OpenApiDocument): void {
  let text: string | undefined;
  const openApi = () => {
    text ??= JSON.stringify(describe());
    return text;
  };
  addPage(app, '/openapi.json', (_request, response) => {
    response.type('application/json').send(openApi());
  });

  // Whoever opens the address of the service in a browser is told where to look.
  app.get('/', (_request, response) => refuse(response, 'nothingHere'));

  let opened: Promise<Site> | undefined;
  const open = () => {
    opened ??= import('../docs/site.ts')
      .then(({ createSite }) => createSite(JSON.parse(openApi())))
      .catch((error) => {
        // The next one tries again.
        opened = undefined;
        throw error;
      });
    return opened;
  };
  const show = async (response: Response, place: string) => {
    const page = (await open()).page(place);
    if (!page) return refuse(response, 'notFound');
    response.set({ ETag: page.etag, 'Cache-Control': ASK_AGAIN }).type('html').send(page.body);
  };

  app.use('/docs', securityHeaders);
  addPage(app, '/docs', (_request, response) => show(response, ''));
  for (const part of ['guides', 'reference'])
    addPage(app, `/docs/${part}/:name`, ({ params }, response) => show(response, `/${part}/${params.name}`));
  let second = 0;
  let searches = 0;
  addPage(app, '/docs/search', async ({ query }, response) => {
    const now = Math.floor(performance.now() / 1000);
    searches = now === second ? searches + 1 : 1;
    second = now;
    if (searches > SEARCHES_A_SECOND) return refuse(response, 'unavailable', { 'Retry-After': '1' });
    const page = await (await open()).search(typeof query.q === 'string' ? query.q : '');
    response.set('Cache-Control', 'no-store').type('html').send(page);
  });
  addPage(app, '/docs/assets/:version/:name', async ({ params }, response) => {
    const name = String(params.name);
    const file = (await open()).asset(String(params.version), name);
    if (!file) return refuse(response, 'notFound');
    response.set('Cache-Control', FOR_EVER).type(types[name.split('.').at(-1)!]!).send(file);
  });
  addPage(app, '/docs/pictures/:name', async ({ params }, response) => {
    const file = (await open()).picture(String(params.name));
    if (!file) return refuse(response, 'notFound');
    response.sendFile(basename(file), { root: dirname(file), maxAge: '1h' });
  });
}

/** Where the file of a link is. */
const DOWNLOADS = '/exports';

/** Links that are looked up at once, and files that are sent: each has an open file and a buffer. */
const LOOK_UPS = { atOnce: 2, atOnceOfOne: 1, mostWaiting: 64, mostWaitingOfOne: 8, patience: 1000 };
const SENDING = { atOnce: 16, atOnceOfOne: 8, mostWaiting: 64, mostWaitingOfOne: 32, patience: 1500 };

/** A receiver that takes nothing for so long has gone. */
const IDLE_MS = 60_000;

/** How links to files of exports are made, from the settings. */
export function createDownloadSettings(config: Config): DownloadSettings {
  const base = (config.PUBLIC_URL || `http://${reachable(config.HOST)}:${config.PORT}`).replace(/\/+$/, '');
  return { isBucket: isBucket(config), urlOf: (token) => `${base}${DOWNLOADS}/${token}` };
}

/**
 * The files of exports that links lead to. A link is as good as a key to the users in it: its signature is of its
 * workspace's key, and it ends some hours after the file is whole.
 */
export function addSegmentDownloads(app: Express, services: EdgeServices): void {
  const { config, log, resources } = services;
  const { database } = resources;
  const lookUps = createRequestSemaphore(LOOK_UPS);
  const sending = createRequestSemaphore(SENDING);

  addPage(app, `${DOWNLOADS}/:token`, async (request, response) => {
    response.setHeader('Cache-Control', 'no-store');
    response.setHeader('X-Robots-Tag', 'noindex, nofollow');
    const token = request.params.token as string;
    const link = readDownload(token);
    if (!link) return refuse(response, 'unknownDownload');
    try {
      const found = await lookUps.use(link.workspaceId, async () => {
        const key = await findLinkKey(database, link.workspaceId);
        if (!key || !isSignedDownload(token, key)) return undefined;
        return findDownload(database.pool, { workspaceId: link.workspaceId, id: link.exportId });
      });
      if (!found) return refuse(response, 'unknownDownload');
      (response as Response<unknown, PageLocals>).locals.known = { workspace_id: link.workspaceId };
      if (found.state !== 'ready')
        return refuse(response, found.state === 'open' ? 'exportNotReady' : 'exportFailed');
      if (found.expiresAt === null) return refuse(response, 'downloadExpired');
      await sending.use(link.workspaceId, () => send(request, response, fileOfLink(found)));
    } catch (error) {
      if (response.headersSent) return void response.destroy();
      const isMissing = error instanceof ObjectStoreError;
      if (isMissing)
        log.error({ err: error, export_id: link.exportId }, 'the file of an export cannot be read');
      const name: ErrorName = 'unavailable';
      refuse(response, name, { 'Retry-After': '2' });
    }
  });

  async function send(request: Request, response: Response, key: string): Promise<void> {
    const store = await openExportFiles(config);
    try {
      const file = await store.stat(key);
      if (!file) throw new ObjectStoreError('missing', `${store.where} has no ${key}: sync writes elsewhere`);
      response.setHeader('Content-Type', 'application/zip');
      response.setHeader('Content-Length', file.bytes);
      response.setHeader('Content-Disposition', `attachment; filename="${key}"`);
      if (request.method === 'HEAD') return void response.end();
      response.setTimeout(IDLE_MS, () => response.destroy());
      await pipeline(await store.get(key), response);
    } finally {
      store.close();
    }
  }
}

import { pipeline } from 'node:stream/promises';
import type { Express, Request, Response } from 'express';
import type { ErrorName } from '../errors.ts';
import {
  DOWNLOADS,
  type ExportFilesSettings,
  fileOfLink,
  openExportFiles,
} from '../export/segment-export.ts';
import { ObjectStoreError } from '../object-store/object-store.ts';
import { isSignedDownload, readDownload } from '../operations/users.export.segment.ts';
import type { Log } from '../platform/log.ts';
import { type MinimumRate, takenBy } from '../platform/response-order.ts';
import type { Database } from '../store/database.ts';
import { findLinkKey } from '../store/preference-centers.ts';
import { findDownload } from '../store/segment-exports.ts';
import { addPage, type PageLocals, refuse } from './app.ts';
import { DownloadSlots } from './download-slots.ts';
import { createRequestSemaphore } from './load-shedding.ts';
import type { Responses } from './responses.ts';

/** Limits of concurrent link look-ups. */
const LOOK_UPS = {
  maxRunning: 2,
  maxRunningPerOwner: 1,
  maxWaiting: 64,
  maxWaitingPerOwner: 8,
  patience: 1000,
};

/** Minimum rate of a receiver: 64 KiB in 10 s. A slower one is cut off to free its slot. */
const SLOWEST: MinimumRate = { bytes: 65_536, milliseconds: 10_000 };

interface DownloadParts {
  database: Database;
  /** Settings of the object store with the files. */
  files: ExportFilesSettings;
  /** Order and minimum progress of the connections. */
  order: Pick<Responses['order'], 'requireRate'>;
  log: Log;
}

/**
 * Adds the downloads of exported files. A link grants access to the users in the file like a key: it is signed with
 * the key of its workspace, and expires some hours after the file is complete.
 */
export function addSegmentDownloads(app: Express, { database, files, order, log }: DownloadParts): void {
  const lookUps = createRequestSemaphore(LOOK_UPS);
  const slots = new DownloadSlots();

  addPage(app, `${DOWNLOADS}/:token`, async (request, response) => {
    response.setHeader('Cache-Control', 'no-store');
    response.setHeader('X-Robots-Tag', 'noindex, nofollow');
    const token = request.params.token as string;
    const link = readDownload(token);
    if (!link) return refuse(response, 'unknownDownload');
    try {
      const stored = await lookUps.use(link.workspaceId, async () => {
        const key = await findLinkKey(database, link.workspaceId);
        if (!key || !isSignedDownload(token, key)) return undefined;
        return findDownload(database.pool, { workspaceId: link.workspaceId, id: link.exportId });
      });
      if (!stored) return refuse(response, 'unknownDownload');
      (response as Response<unknown, PageLocals>).locals.logFields = { workspace_id: link.workspaceId };
      if (stored.state !== 'ready')
        return refuse(response, stored.state === 'open' ? 'exportNotReady' : 'exportFailed');
      if (stored.expiresAt === null) return refuse(response, 'downloadExpired');
      const download = {
        taken: () => takenBy(response),
        cut: () => void response.destroy(),
      };
      await slots.use(link.workspaceId, download, () => send(request, response, fileOfLink(stored)));
    } catch (error) {
      if (response.headersSent) return void response.destroy();
      const isMissing = error instanceof ObjectStoreError;
      if (isMissing)
        log.error({ err: error, export_id: link.exportId }, 'file of a segment export could not be read');
      const name: ErrorName = 'unavailable';
      refuse(response, name, { 'Retry-After': '2' });
    }
  });

  async function send(request: Request, response: Response, key: string): Promise<void> {
    const store = await openExportFiles(files);
    try {
      const file = await store.stat(key);
      if (!file)
        throw new ObjectStoreError(
          'missing',
          `${store.where} has no ${key}; set the same SEGMENT_EXPORT_URL for web and sync`,
        );
      response.setHeader('Content-Type', 'application/zip');
      response.setHeader('Content-Length', file.bytes);
      response.setHeader('Content-Disposition', `attachment; filename="${key}"`);
      if (request.method === 'HEAD') return void response.end();
      order.requireRate(response, SLOWEST);
      await pipeline(await store.get(key), response);
    } finally {
      store.close();
    }
  }
}

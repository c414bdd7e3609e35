import type { RequestHandler } from 'express';
import helmet from 'helmet';
import { LRUCache } from 'lru-cache';
import { isSigned, type Link, readLink } from '../preferences/link.ts';
import type { LinkSettings } from '../preferences/settings.ts';
import { type LiveGroup, type View, viewOf } from '../preferences/submission.ts';
import type { Database } from '../store/database.ts';
import { readProfiles } from '../store/export.ts';
import { findKeptProfile, findLinkKey } from '../store/preference-centers.ts';
import { createRequestSemaphore } from './load-shedding.ts';

/** An unknown or expired link. */
export class LinkRefused extends Error {
  override name = 'LinkRefused';
  readonly status: 404 | 410;

  constructor(status: 404 | 410) {
    super(status === 404 ? 'no such link' : 'a link that is over');
    this.status = status;
  }
}

/** The data of a valid link. */
export interface Opened {
  workspaceId: string;
  center: { id: string; title: string; pageHtml: string; confirmationHtml: string; options: unknown };
  user: { externalId: string; email: string };
  view: View;
  /** Groups of the workspace that are not archived. */
  groups: LiveGroup[];
}

/** Maximum number of cached keys. Bounds their memory. */
const MAX_KEYS = 10_000;

/** Limits of key look-ups. Separate from the limits of pages, so that forged links do not delay pages. */
const LOOK_UPS = {
  maxRunning: 2,
  maxRunningPerOwner: 1,
  maxWaiting: 256,
  maxWaitingPerOwner: 1,
  patience: 1000,
};

/** Opens links. Center, user and states are read each time, so a page shows their current values. */
export function createLinkOpener(database: Database) {
  /** Keys never change. */
  const keys = new LRUCache<string, Uint8Array>({ max: MAX_KEYS });
  const lookUps = new Map<string, Promise<Uint8Array | undefined>>();
  const semaphore = createRequestSemaphore(LOOK_UPS);

  /**
   * Checks the signature and the expiry of a token. The only look-up is that of the key.
   * @throws {LinkRefused}
   */
  async function verify(token: string, now: number): Promise<Link> {
    const link = readLink(token);
    const key = link && (keys.get(link.workspaceId) ?? (await lookUp(link.workspaceId)));
    if (!link || !key || !isSigned(token, key)) throw new LinkRefused(404);
    if (link.expiresAt <= now) throw new LinkRefused(410);
    return link;
  }

  /**
   * @param link a verified link
   * @param submitUrl target of the page's form
   * @throws {LinkRefused}
   */
  async function open(link: Link, submitUrl: string): Promise<Opened> {
    const { workspaceId } = link;
    const [center, profileId, groups] = await Promise.all([
      database.prisma.preferenceCenter.findUnique({
        where: { workspaceId_id: { workspaceId, id: link.centerId } },
      }),
      findKeptProfile(database.pool, workspaceId, link.profileId),
      database.prisma.subscriptionGroup.findMany({
        where: { workspaceId, archivedAt: null },
        orderBy: { id: 'asc' },
        select: { id: true, channel: true },
      }),
    ]);
    if (center?.state !== 'active') throw new LinkRefused(404);
    if (profileId === undefined) throw new LinkRefused(410);
    const [revoked, [user]] = await Promise.all([
      isRevoked(link, profileId),
      readProfiles(database.pool, workspaceId, {
        ids: [profileId],
        fields: ['custom_attributes', 'subscription_groups'],
      }),
    ]);
    if (revoked || !user) throw new LinkRefused(410);
    const { external_id: externalId, email } = user;
    if (externalId === null || email === null) throw new LinkRefused(410);
    const view = viewOf(user, groups, submitUrl);
    return { workspaceId, center, user: { externalId, email }, view, groups };
  }

  /** Requests that arrive during a look-up of their workspace's key share it. */
  function lookUp(workspaceId: string): Promise<Uint8Array | undefined> {
    const other = lookUps.get(workspaceId);
    if (other) return other;
    const pending = semaphore
      .use(workspaceId, () => findLinkKey(database, workspaceId))
      .then((key) => {
        if (key) keys.set(workspaceId, key);
        return key;
      })
      .finally(() => lookUps.delete(workspaceId));
    lookUps.set(workspaceId, pending);
    return pending;
  }

  async function isRevoked({ workspaceId, centerId, profileId, madeAt }: Link, keptId: string) {
    const revocations = await database.prisma.preferenceLinkRevocation.count({
      where: {
        workspaceId,
        revokedAt: { gte: new Date(madeAt) },
        OR: [
          { subjectKind: 'center', subjectId: centerId },
          { subjectKind: 'user', subjectId: { in: [profileId, keptId] } },
        ],
      },
    });
    return revocations > 0;
  }

  return { verify, open };
}

/**
 * Headers for pages whose content belongs to the customer. A page cannot run scripts, be framed, or send its form
 * anywhere except to its own link. It has an origin of its own, from which it cannot read other pages of this or any
 * other server. Its link is never sent in a Referer.
 */
export function preferencePolicy(links: LinkSettings): RequestHandler[] {
  return [
    helmet({
      contentSecurityPolicy: {
        useDefaults: false,
        directives: {
          defaultSrc: ["'none'"],
          styleSrc: ["'unsafe-inline'", 'https:'],
          imgSrc: ['https:', 'data:'],
          fontSrc: ['https:', 'data:'],
          formAction: [(request) => formTarget((request as { params?: { token?: string } }).params, links)],
          frameAncestors: ["'none'"],
          baseUri: ["'none'"],
          sandbox: ['allow-forms', 'allow-popups', 'allow-popups-to-escape-sandbox'],
        },
      },
      referrerPolicy: { policy: 'no-referrer' },
      frameguard: { action: 'deny' },
      // The sandbox gives the page an origin of its own, which is stronger.
      originAgentCluster: false,
      // The proxy is responsible for TLS.
      strictTransportSecurity: false,
    }),
    (_request, response, next) => {
      response.setHeader('Cache-Control', 'no-store');
      response.setHeader('X-Robots-Tag', 'noindex, nofollow');
      next();
    },
  ];
}

/** Only a well-formed token may appear in the header. */
function formTarget(params: { token?: string } | undefined, links: LinkSettings): string {
  const token = params?.token ?? '';
  return readLink(token) ? links.urlOf(token) : "'none'";
}

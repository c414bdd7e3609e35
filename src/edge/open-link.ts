import type { RequestHandler } from 'express';
import helmet from 'helmet';
import { LRUCache } from 'lru-cache';
import type { LinkSettings } from '../operations/operation.ts';
import type { Config } from '../platform/config.ts';
import { reachable } from '../platform/lifecycle.ts';
import { isSigned, type Link, readLink } from '../preferences/link.ts';
import { type LiveGroup, type View, viewOf } from '../preferences/submission.ts';
import type { Database } from '../store/database.ts';
import { readProfiles } from '../store/export.ts';
import { findKeptProfile, findLinkKey } from '../store/preference-centers.ts';
import { createRequestSemaphore } from './load-shedding.ts';

/** A link that opens nothing: there never was such a one, or its time is over. */
export class LinkRefused extends Error {
  override name = 'LinkRefused';
  readonly status: 404 | 410;

  constructor(status: 404 | 410) {
    super(status === 404 ? 'no such link' : 'a link that is over');
    this.status = status;
  }
}

/** What a link opens. */
export interface Opened {
  workspaceId: string;
  center: { id: string; title: string; pageHtml: string; confirmationHtml: string; options: unknown };
  user: { externalId: string; email: string };
  view: View;
  /** Those of the workspace that are not archived. */
  groups: LiveGroup[];
}

/** Bounds the memory that keys take. */
const MAX_KEYS = 10_000;

/** Look-ups of keys: apart from the pages, so that made-up links hold up none. */
const LOOK_UPS = { atOnce: 2, atOnceOfOne: 1, mostWaiting: 256, mostWaitingOfOne: 1, patience: 1000 };

/** Opens links, as they are now: center, user and states are read each time. */
export function createLinkOpener(database: Database) {
  /** Keys never change. */
  const keys = new LRUCache<string, Uint8Array>({ max: MAX_KEYS });
  const lookUps = new Map<string, Promise<Uint8Array | undefined>>();
  const semaphore = createRequestSemaphore(LOOK_UPS);

  /**
   * Whether a token is signed, and still good. Nothing is looked up but the key.
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
   * @param link that has been verified
   * @param submitUrl where the form of the page goes
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

  /** Everyone who asks for a key meanwhile shares one look-up. */
  function lookUp(workspaceId: string): Promise<Uint8Array | undefined> {
    const other = lookUps.get(workspaceId);
    if (other) return other;
    const found = semaphore
      .use(workspaceId, () => findLinkKey(database, workspaceId))
      .then((key) => {
        if (key) keys.set(workspaceId, key);
        return key;
      })
      .finally(() => lookUps.delete(workspaceId));
    lookUps.set(workspaceId, found);
    return found;
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

/** Where the page of a link is. */
export const PREFERENCES = '/preferences';

/** How links to preference centers are made, from the settings. */
export function createLinkSettings(config: Config): LinkSettings {
  const base = (config.PUBLIC_URL || `http://${reachable(config.HOST)}:${config.PORT}`).replace(/\/+$/, '');
  return { urlOf: (token) => `${base}${PREFERENCES}/${token}`, days: config.PREFERENCE_LINK_DAYS };
}

/**
 * What stands on the page belongs to the customer. It runs no script, sends its form to its own link and nowhere else,
 * and is framed by nobody. It lives in an origin of its own: from there no page of this server, nor of any other, can
 * be read. The link never leaves in a Referer.
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
      // The sandbox gives the page an origin of its own, which is more.
      originAgentCluster: false,
      // TLS is the proxy's affair.
      strictTransportSecurity: false,
    }),
    (_request, response, next) => {
      response.setHeader('Cache-Control', 'no-store');
      response.setHeader('X-Robots-Tag', 'noindex, nofollow');
      next();
    },
  ];
}

/** Only what can be a token gets into the header. */
function formTarget(params: { token?: string } | undefined, links: LinkSettings): string {
  const token = params?.token ?? '';
  return readLink(token) ? links.urlOf(token) : "'none'";
}

import type { GlobalState, GroupStateName } from '../preferences/form-fields.ts';
import { isSigned, type Link, readLink } from '../preferences/link.ts';
import type { LiveGroup } from '../preferences/submission.ts';
import { attributeNames, type View } from '../preferences/view.ts';
import type { Json } from '../profile/json.ts';
import type { Database } from '../store/database.ts';
import { readProfiles, type StoredUser } from '../store/export/read-profiles.ts';
import { findKeptProfile } from '../store/preference-centers/find-kept-profile.ts';
import { findLinkKey } from '../store/preference-centers/link-key.ts';

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
const MAX_KEYS = 1000;

/** Opens links, as they are now: center, user and states are read each time. */
export function createLinkOpener(database: Database) {
  /** Keys never change. */
  const keys = new Map<string, Uint8Array>();

  /**
   * Nothing is looked up but the key before the signature is known to be right.
   *
   * @param submitUrl where the form of the page goes
   * @throws {LinkRefused}
   */
  async function open(token: string, submitUrl: string, now: number): Promise<Opened> {
    const link = readLink(token);
    const key = link && (await keyOf(link.workspaceId));
    if (!link || !key || !isSigned(token, key)) throw new LinkRefused(404);
    if (link.expiresAt <= now) throw new LinkRefused(410);

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
      readProfiles(database.pool, workspaceId, [profileId], ['custom_attributes', 'subscription_groups']),
    ]);
    if (revoked || !user) throw new LinkRefused(410);
    const { external_id: externalId, email } = user;
    if (typeof externalId !== 'string' || typeof email !== 'string') throw new LinkRefused(410);
    const view = viewOf(user, groups, submitUrl);
    return { workspaceId, center, user: { externalId, email }, view, groups };
  }

  async function keyOf(workspaceId: string): Promise<Uint8Array | undefined> {
    const known = keys.get(workspaceId);
    if (known) return known;
    const key = await findLinkKey(database, workspaceId);
    if (key && keys.size >= MAX_KEYS) keys.clear();
    if (key) keys.set(workspaceId, key);
    return key;
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

  return { open };
}

/** A group without any word of the user is one that the user is not in. */
function viewOf(user: StoredUser, groups: LiveGroup[], submitUrl: string): View {
  const told = (user.subscription_groups ?? []) as { id: string; status: string }[];
  const states = new Map(told.map(({ id, status }) => [id, status.toLowerCase() as GroupStateName]));
  return {
    attributes: Object.fromEntries(
      Object.entries(attributeNames).flatMap(([name, member]) =>
        typeof user[member] === 'string' ? [[name, user[member]]] : [],
      ),
    ),
    customAttributes: (user.custom_attributes ?? {}) as Record<string, Json>,
    emailGlobal: user.email_subscribe as GlobalState,
    groups: Object.fromEntries(groups.map(({ id }) => [id, states.get(id) ?? 'unsubscribed'])),
    submitUrl,
  };
}

import { ApiError } from '../errors.ts';
import { signLink } from '../preferences/link.ts';
import { findLinkUser, requireLinkKey } from '../store/preference-centers.ts';
import type { DirectOperation } from './operation.ts';
import { centerIdOf } from './preference-center/contents.ts';
import { exampleId } from './preference-center/schemas.ts';

const DAY = 86_400_000;

/** POST on the path of GET, which some clients send. Both do the same. */
export function preferenceCenterUserPost(): DirectOperation {
  return { ...preferenceCenterUserGet(), id: 'preference_center.user.post', method: 'POST' };
}

/** GET /preference_center/v1/{preferenceCenterExternalId}/url/{userId} */
export function preferenceCenterUserGet(): DirectOperation {
  return {
    kind: 'direct',
    id: 'preference_center.user.get',
    method: 'GET',
    path: '/preference_center/v1/:preferenceCenterExternalId/url/:userId',
    permission: 'preference_center.user.get',
    bucket: 'preference_center.read',
    summary: 'Create a link to a preference center for a user',
    description:
      'Everyone who has the link can see and change the states of this user. `userId` is an external id. The user needs an email address. Each request creates a new link, which opens the page for `PREFERENCE_LINK_DAYS` days unless it is revoked.',
    replies: {
      200: {
        description: 'The link.',
        schema: {
          type: 'object',
          required: ['preference_center_url'],
          properties: { preference_center_url: { type: 'string', description: 'Address of the page.' } },
        },
      },
    },
    refusals: ['draftPreferenceCenter', 'userWithoutEmail', 'unknownPreferenceCenter', 'unknownUser'],
    example: {
      params: { preferenceCenterExternalId: exampleId, userId: 'lovelace' },
      reply: { preference_center_url: 'https://penstock.example/preferences/AQGcE-yi4rYfDFWj1wAAAZwT7KL6' },
    },

    async handle({ workspaceId }, { params }, { database, links }) {
      const id = centerIdOf(params);
      const center =
        id &&
        (await database.prisma.preferenceCenter.findUnique({
          where: { workspaceId_id: { workspaceId, id } },
          select: { state: true },
        }));
      if (!center) throw new ApiError('unknownPreferenceCenter');
      if (center.state === 'draft') throw new ApiError('draftPreferenceCenter');

      const userId = params.userId!;
      // Postgres rejects text with U+0000, so no user has such an id.
      const user = userId.includes('\0') ? undefined : await findLinkUser(database.pool, workspaceId, userId);
      if (!user) throw new ApiError('unknownUser');
      if (user.email === null) throw new ApiError('userWithoutEmail');

      const link = {
        workspaceId,
        centerId: id,
        profileId: user.id,
        madeAt: user.now,
        expiresAt: user.now + links.days * DAY,
      };
      const token = signLink(link, await requireLinkKey(database, workspaceId));
      return { status: 200, body: { preference_center_url: links.urlOf(token) } };
    },
  };
}

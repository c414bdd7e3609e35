import { grouped } from '../platform/format.ts';
import type { DirectOperation } from './operation.ts';
import { MAX_CENTERS, stampsOf } from './preference-center/contents.ts';
import { exampleStamps, listReply } from './preference-center/schemas.ts';

/** GET /preference_center/v1/list */
export function preferenceCenterList(): DirectOperation {
  return {
    kind: 'direct',
    id: 'preference_center.list',
    method: 'GET',
    path: '/preference_center/v1/list',
    permission: 'preference_center.list',
    bucket: 'preference_center.read',
    summary: 'List the preference centers of the workspace',
    description: `Lists all preference centers, drafts included, oldest first. A workspace can have ${grouped(MAX_CENTERS)}.`,
    replies: { 200: { description: 'The preference centers.', schema: listReply } },
    example: { reply: { preference_centers: [{ name: 'newsletters', ...exampleStamps }] } },

    async handle({ workspaceId }, _input, { database: { prisma } }) {
      const centers = await prisma.preferenceCenter.findMany({
        where: { workspaceId },
        orderBy: [{ createdAt: 'asc' }, { id: 'asc' }],
        omit: { pageHtml: true, confirmationHtml: true },
        take: MAX_CENTERS,
      });
      const listed = centers.map((center) => ({ name: center.name, ...stampsOf(center) }));
      return { status: 200, body: { preference_centers: listed } };
    },
  };
}

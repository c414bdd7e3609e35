import type { DirectOperation } from './operation.ts';
import { createCenter, createdBody, readContents } from './preference-center/contents.ts';
import { createBody, createdReply, exampleContents, exampleStamps } from './preference-center/schemas.ts';

/** POST /preference_center/v1 */
export function preferenceCenterCreate(): DirectOperation {
  return {
    kind: 'direct',
    id: 'preference_center.create',
    method: 'POST',
    path: '/preference_center/v1',
    permission: 'preference_center.update',
    bucket: 'preference_center.write',
    renders: true,
    summary: 'Create a preference center',
    description:
      'Both templates are rendered once before they are stored. If a template is not valid or names an unknown subscription group, the request is refused and the error has the line. You cannot change the name later.',
    body: createBody,
    replies: { 201: { description: 'The preference center was created.', schema: createdReply } },
    refusals: ['nameTaken', 'tooManyPreferenceCenters'],
    example: {
      body: { name: 'newsletters', ...exampleContents },
      reply: {
        ...exampleStamps,
        liquid_tag: '{{preference_center.${newsletters}}}',
        message: 'success',
      },
    },

    async handle({ workspaceId, requestId: id, now }, { body }, resources) {
      const contents = await readContents(workspaceId, body, resources);
      const { database } = resources;
      const name = body.name as string;
      const center = await createCenter(database, {
        ...{ workspaceId, id, name, contents },
        now: new Date(now),
      }).catch(async (error: unknown) => {
        const made = await database.prisma.preferenceCenter.findUnique({
          where: { workspaceId_id: { workspaceId, id } },
        });
        if (!made) throw error;
        return made;
      });
      return { status: 201, body: createdBody(center) };
    },
  };
}

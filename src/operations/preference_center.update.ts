import { ApiError } from '../errors.ts';
import type { DirectOperation } from './operation.ts';
import { centerIdOf, readContents, updateCenter, updatedBody } from './preference-center/contents.ts';
import {
  exampleContents,
  exampleId,
  exampleStamps,
  updateBody,
  updatedReply,
} from './preference-center/schemas.ts';

/** PUT /preference_center/v1/{preferenceCenterExternalId} */
export function preferenceCenterUpdate(): DirectOperation {
  return {
    kind: 'direct',
    id: 'preference_center.update',
    method: 'PUT',
    path: '/preference_center/v1/:preferenceCenterExternalId',
    permission: 'preference_center.update',
    bucket: 'preference_center.write',
    renders: true,
    summary: 'Update a preference center',
    description:
      'Replaces both templates and every other member that you send. Members that are absent do not change. Existing links open the new page.',
    body: updateBody,
    replies: { 200: { description: 'The preference center was changed.', schema: updatedReply } },
    refusals: ['unknownPreferenceCenter'],
    example: {
      params: { preferenceCenterExternalId: exampleId },
      body: exampleContents,
      reply: { ...exampleStamps, message: 'success' },
    },

    async handle({ workspaceId, now }, { body, params }, resources) {
      const id = centerIdOf(params);
      if (!id) throw new ApiError('unknownPreferenceCenter');
      const contents = await readContents(workspaceId, body, resources);
      const change = { workspaceId, id, contents, now: new Date(now) };
      const center = await updateCenter(resources.database, change);
      if (!center) throw new ApiError('unknownPreferenceCenter');
      return { status: 200, body: updatedBody(center) };
    },
  };
}

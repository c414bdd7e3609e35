import { ApiError } from '../errors.ts';
import type { Json } from '../profile/json.ts';
import type { DirectOperation } from './operation.ts';
import { centerIdOf, stampsOf } from './preference-center/contents.ts';
import { exampleContents, exampleId, exampleStamps, viewReply } from './preference-center/schemas.ts';

/** GET /preference_center/v1/{preferenceCenterExternalId} */
export function preferenceCenterGet(): DirectOperation {
  const { options, ...contents } = exampleContents;
  return {
    kind: 'direct',
    id: 'preference_center.get',
    method: 'GET',
    path: '/preference_center/v1/:preferenceCenterExternalId',
    permission: 'preference_center.get',
    bucket: 'preference_center.read',
    summary: 'View a preference center',
    description: 'Returns the preference center with its templates as sent.',
    replies: { 200: { description: 'The preference center.', schema: viewReply } },
    refusals: ['unknownPreferenceCenter'],
    example: {
      params: { preferenceCenterExternalId: exampleId },
      reply: {
        name: 'newsletters',
        ...exampleStamps,
        ...contents,
        redirect_page_html: null,
        preference_center_options: options,
      },
    },

    async handle({ workspaceId }, { params }, { database: { prisma } }) {
      const id = centerIdOf(params);
      const center =
        id && (await prisma.preferenceCenter.findUnique({ where: { workspaceId_id: { workspaceId, id } } }));
      if (!center) throw new ApiError('unknownPreferenceCenter');
      return {
        status: 200,
        body: {
          name: center.name,
          ...stampsOf(center),
          preference_center_title: center.title,
          preference_center_page_html: center.pageHtml,
          confirmation_page_html: center.confirmationHtml,
          redirect_page_html: null,
          preference_center_options: center.options as Json,
          state: center.state,
        },
      };
    },
  };
}

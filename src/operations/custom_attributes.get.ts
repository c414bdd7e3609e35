import { namesOfTypes } from '../profile/attribute-types.ts';
import { listAttributeNames, MAX_NAMES } from '../store/attribute-names.ts';
import { PAGE, pageOf, readCursor } from './activity/named-pages.ts';
import { cursorQuery } from './cdi/schemas.ts';
import type { DirectOperation } from './operation.ts';

const PATH = '/custom_attributes';

/** GET /custom_attributes: the names of custom attributes with their types, page by page. */
export function customAttributesGet(): DirectOperation {
  return {
    kind: 'direct',
    id: 'custom_attributes.get',
    method: 'GET',
    path: PATH,
    permission: 'custom_attributes.get',
    bucket: 'events.list',
    summary: 'List custom attributes with their types',
    description: `Lists the custom attributes that users of the workspace have or had, in alphabetical order, ${PAGE} per page. Only the first ${MAX_NAMES.toLocaleString('en')} attributes that were seen are listed. The \`Link\` header has the relative URL of the next page. It is absent on the last page. \`description\`, \`tag_names\` and \`array_length\` are always empty.`,
    query: cursorQuery,
    replies: {
      200: {
        description: `At most ${PAGE} attributes.`,
        schema: {
          type: 'object',
          required: ['attributes', 'message'],
          properties: {
            attributes: {
              type: 'array',
              maxItems: PAGE,
              items: {
                type: 'object',
                required: ['name', 'data_type', 'description', 'array_length', 'status', 'tag_names'],
                properties: {
                  name: { type: 'string' },
                  data_type: {
                    type: 'string',
                    description:
                      '`String`, `Number`, `Boolean`, `Date`, `Array`, `Object` or `Object Array`. If values of several types were seen, all of them, for example `String, Number`.',
                  },
                  description: { type: 'null', description: 'Always null or empty.' },
                  array_length: { type: 'null', description: 'Always null.' },
                  status: { const: 'Active' },
                  tag_names: { type: 'array', maxItems: 0, description: 'Always null or empty.' },
                },
              },
            },
            message: { const: 'success' },
          },
        },
      },
    },
    refusals: ['invalidCursor'],
    example: { query: {}, reply: { attributes: [describe('plan', 'String')], message: 'success' } },

    async handle({ workspaceId }, { query }, { database }) {
      const after = readCursor(query, PATH);
      const rows = await listAttributeNames(database, workspaceId, { after, limit: PAGE + 1 });
      const { page, headers } = pageOf(
        PATH,
        rows.map(({ name, types }) => describe(name, namesOfTypes(types))),
      );
      return { status: 200, body: { attributes: page, message: 'success' }, headers };
    },
  };
}

function describe(name: string, data_type: string) {
  return {
    ...{ name, data_type, description: null, array_length: null },
    ...{ status: 'Active', tag_names: [] },
  };
}

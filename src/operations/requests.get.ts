import { validate as isVersionedUuid, version } from 'uuid';
import { ApiError } from '../errors.ts';
import type { Json } from '../profile/json.ts';
import type { Schema } from '../schemas/compile.ts';
import type { DirectOperation } from './operation.ts';
import { acceptedAt, followRequest, overall } from './requests/follow.ts';

/** Of the objects of the documented example. */
export const EXAMPLE_REQUEST = '019c13ec-a2e2-7c84-bea2-c5e0d85f1e01';

/**
 * GET /requests/{request_id}: what has become of the objects of a request.
 *
 * @param serviceIdField wire name of the service id
 */
export function requestsGet(serviceIdField: string): DirectOperation {
  const nameOf = (array: string) => (array === 'service_ids' ? `${serviceIdField}s` : array);
  return {
    kind: 'direct',
    id: 'requests.get',
    method: 'GET',
    path: '/requests/:request_id',
    bucket: 'requests',
    summary: 'Follow an accepted request',
    description:
      "What became of each object of a request whose answer had this `X-Request-Id`, for as long as applied envelopes are remembered (`LEDGER_DAYS`). `accepted`: it is on disk and will take effect. `applied`: it has taken effect, or meant nobody. `failed`: it could not be applied, `reason` says why, and an operator may try it again. What the request's own answer named in `errors` was not accepted and is not listed; requests that are answered from the store at once have nothing to follow.",
    replies: { 200: { description: 'What has become of it.', schema: replySchema } },
    refusals: ['unknownRequest'],
    example: {
      params: { request_id: EXAMPLE_REQUEST },
      reply: {
        request_id: EXAMPLE_REQUEST,
        accepted_at: '2026-01-31T12:00:00.226Z',
        status: 'partially_applied',
        objects: [
          { input_array: 'attributes', index: 0, status: 'applied' },
          {
            input_array: 'events',
            index: 0,
            status: 'failed',
            reason: 'value out of range',
          },
        ],
        message: 'success',
      },
    },

    async handle({ workspaceId }, { params }, resources) {
      const requestId = params.request_id!.toLowerCase();
      if (!isVersionedUuid(requestId) || version(requestId) !== 7) throw new ApiError('unknownRequest');
      const followed = await followRequest(resources, workspaceId, requestId);
      if (!followed) throw new ApiError('unknownRequest');
      const { objects, unknown } = followed;
      const body: Record<string, Json> = {
        request_id: requestId,
        accepted_at: acceptedAt(requestId),
        status: overall(objects, unknown),
        objects: objects.map(({ input_array, ...object }) => ({
          input_array: nameOf(input_array),
          ...object,
        })),
        ...(unknown > 0 && { unknown }),
        message: 'success',
      };
      return { status: 200, body };
    },
  };
}

const replySchema: Schema = {
  type: 'object',
  required: ['request_id', 'accepted_at', 'status', 'objects', 'message'],
  properties: {
    request_id: { type: 'string' },
    accepted_at: { type: 'string', description: 'ISO 8601: when the request arrived.' },
    status: {
      enum: ['accepted', 'applied', 'failed', 'partially_applied'],
      description: 'That of all objects; `partially_applied`: they differ.',
    },
    objects: {
      type: 'array',
      description: 'The accepted objects, by array and place.',
      items: {
        type: 'object',
        required: ['input_array', 'index', 'status'],
        properties: {
          input_array: { type: 'string', description: 'Name of the array of the request.' },
          index: { type: 'integer', minimum: 0, description: 'Place in that array.' },
          status: { enum: ['accepted', 'applied', 'failed'] },
          reason: { type: 'string', description: 'Why it failed.' },
        },
      },
    },
    unknown: {
      type: 'integer',
      minimum: 1,
      description:
        'Objects of which nothing is known: an earlier release has applied them, or the queue has lost them.',
    },
    message: { const: 'success' },
  },
};

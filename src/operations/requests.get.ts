import { validate as isVersionedUuid, version } from 'uuid';
import { ApiError } from '../errors.ts';
import type { Json } from '../profile/json.ts';
import { rejectionReasons } from '../profile/refusal.ts';
import type { Schema } from '../schemas/compile.ts';
import type { DirectOperation } from './operation.ts';
import { acceptedAt, followRequest, overall } from './requests/follow.ts';

/** Id of the request in the documented example. */
export const EXAMPLE_REQUEST = '019c13ec-a2e2-7c84-bea2-c5e0d85f1e01';

/**
 * GET /requests/{request_id}: reports the status of each object of a request.
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
    readsQueue: true,
    summary: 'Follow an accepted request',
    description:
      'Returns the status of each object of a request, by the `X-Request-Id` of its answer. Applied requests are remembered for `LEDGER_DAYS` days. `accepted`: the object is stored on disk and will take effect. `applied`: the object has taken effect, or its identifier matches no user. `failed`: the object could not be applied. `reason` has the cause, and an operator can retry the object. `rejected` lists the objects that the answer listed in `errors`, each with a stable reason. It is available about a second after the answer, for 30 days, and for at most 1,000 requests per workspace, hour and web process. Requests that are answered directly from the store cannot be followed. After a loss of the queue, a 404 for a request that was answered with 201 means that the request is lost: send it again. An id starts with the clock of the web process that accepted the request, so the order of ids is not the order of acceptance.',
    replies: { 200: { description: 'The status of the request.', schema: replySchema } },
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
        rejected: [{ input_array: 'events', index: 1, reason: 'required', field: 'name' }],
        message: 'success',
      },
    },

    async handle({ workspaceId }, { params }, resources) {
      const requestId = params.request_id!.toLowerCase();
      if (!isVersionedUuid(requestId) || version(requestId) !== 7) throw new ApiError('unknownRequest');
      const followed = await followRequest(resources, workspaceId, requestId);
      if (!followed) throw new ApiError('unknownRequest');
      const { objects, unknown, refused, rejected } = followed;
      const body: Record<string, Json> = {
        request_id: requestId,
        accepted_at: acceptedAt(requestId),
        status: overall(followed),
        objects: objects.map(({ input_array, ...object }) => ({
          input_array: nameOf(input_array),
          ...object,
        })),
        ...(unknown > 0 && { unknown }),
        ...(refused.length > 0 && {
          rejected: refused.map(({ inputArray: input_array, index, reason, field }) => ({
            ...{ input_array, index, reason },
            ...(field !== '' && { field }),
          })),
        }),
        ...(rejected > refused.length && { rejected_count: rejected }),
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
      enum: ['accepted', 'applied', 'failed', 'partially_applied', 'rejected'],
      description:
        'The status of all accepted objects. `partially_applied`: they differ. `rejected`: no object was accepted.',
    },
    objects: {
      type: 'array',
      description: 'The accepted objects by array and position.',
      items: {
        type: 'object',
        required: ['input_array', 'index', 'status'],
        properties: {
          input_array: { type: 'string', description: 'Name of the array of the request.' },
          index: { type: 'integer', minimum: 0, description: 'Position in the array, from 0.' },
          status: { enum: ['accepted', 'applied', 'failed'] },
          reason: { type: 'string', description: 'Why it failed.' },
        },
      },
    },
    unknown: {
      type: 'integer',
      minimum: 1,
      description:
        'Number of accepted objects with unknown status: the queue has lost them, or they were applied more than `LEDGER_DAYS` days ago.',
    },
    rejected: {
      type: 'array',
      description:
        'Objects that were refused, the first 300 of them. Absent if there are none, or if the request is not kept.',
      items: {
        type: 'object',
        required: ['input_array', 'index', 'reason'],
        properties: {
          input_array: { type: 'string', description: 'Name of the array of the request.' },
          index: { type: 'integer', minimum: 0, description: 'Position in the array, from 0.' },
          reason: {
            enum: Object.keys(rejectionReasons),
            description: 'Stable name of the reason.',
          },
          field: {
            type: 'string',
            description:
              'The field that caused it, without array positions. Absent if the rule concerns the whole object.',
          },
        },
      },
    },
    rejected_count: {
      type: 'integer',
      minimum: 301,
      description: 'Number of refused objects, if there are more than `rejected` lists.',
    },
    message: { const: 'success' },
  },
};

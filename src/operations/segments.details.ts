import { ApiError, BadRequest } from '../errors.ts';
import { required } from '../profile/refusal.ts';
import { describe } from '../profile/segment.ts';
import { uuidOf } from '../profile/values.ts';
import { findSegment } from '../store/segments.ts';
import type { DirectOperation } from './operation.ts';

/** Id of the segment in the documented example. */
export const EXAMPLE_SEGMENT = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';

/** GET /segments/details */
export const segmentsDetails = (): DirectOperation => ({
  id: 'segments.details',
  kind: 'direct',
  method: 'GET',
  path: '/segments/details',
  bucket: 'default',
  permission: 'segments.details',
  summary: 'Get a segment',
  description: 'Returns the name, the purpose and the filter of a segment.',
  query: {
    type: 'object',
    required: ['segment_id'],
    properties: { segment_id: { type: 'string', description: 'An id from `/segments/list`.' } },
  },
  replies: {
    200: {
      description: 'The segment.',
      schema: {
        type: 'object',
        required: [
          'name',
          'description',
          'text_description',
          'created_at',
          'updated_at',
          'tags',
          'teams',
          'message',
        ],
        properties: {
          name: { type: 'string' },
          description: { type: 'string', description: 'The filter in words.' },
          text_description: { type: 'string', description: 'The purpose that an operator has entered.' },
          created_at: { type: 'string', format: 'date-time' },
          updated_at: { type: 'string', format: 'date-time' },
          tags: { type: 'array', maxItems: 0, description: 'Always empty.' },
          teams: { type: 'array', maxItems: 0, description: 'Always empty.' },
          message: { const: 'success' },
        },
      },
    },
  },
  refusals: ['unknownSegment'],
  example: {
    query: { segment_id: EXAMPLE_SEGMENT },
    reply: {
      name: 'Readers in Germany',
      description: '(attribute country equals "DE" and event read last in days 30)',
      text_description: 'For the monthly letter.',
      created_at: '2026-01-02T03:04:05.000Z',
      updated_at: '2026-01-02T03:04:05.000Z',
      tags: [],
      teams: [],
      message: 'success',
    },
  },

  async handle({ workspaceId }, { query }, { database }) {
    const segmentId = query.segment_id;
    if (typeof segmentId !== 'string' || segmentId === '') throw new BadRequest(required('segment_id'));
    const id = uuidOf(segmentId);
    const segment = id === undefined ? undefined : await findSegment(database.pool, workspaceId, id);
    if (!segment) throw new ApiError('unknownSegment');
    const { name, purpose, definition, createdAt, updatedAt } = segment;
    return {
      status: 200,
      body: {
        ...{ name, description: describe(definition), text_description: purpose },
        created_at: createdAt.toISOString(),
        updated_at: updatedAt.toISOString(),
        ...{ tags: [], teams: [], message: 'success' },
      },
    };
  },
});

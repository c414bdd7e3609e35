import { BadRequest } from '../errors.ts';
import { invalid } from '../profile/refusal.ts';
import type { Database } from '../store/database.ts';
import type { DirectOperation } from './operation.ts';
import {
  type Contents,
  centerIdOf,
  createCenter,
  createdBody,
  type PreferenceCenter,
  readContents,
  requireName,
  updateCenter,
  updatedBody,
} from './preference-center/contents.ts';
import {
  createdReply,
  exampleContents,
  exampleId,
  exampleStamps,
  saveBody,
  updatedReply,
} from './preference-center/schemas.ts';

/** POST /preference_center/v1/{preferenceCenterExternalId} */
export function preferenceCenterSave(): DirectOperation {
  return {
    kind: 'direct',
    id: 'preference_center.save',
    method: 'POST',
    path: '/preference_center/v1/:preferenceCenterExternalId',
    permission: 'preference_center.update',
    bucket: 'preference_center.write',
    renders: true,
    summary: 'Update a preference center, or create it with your own id',
    description:
      'If a preference center has this id, works like PUT. Otherwise creates a preference center with this id. The id must be a UUID, and a name is required.',
    body: saveBody,
    replies: {
      200: { description: 'The preference center was changed.', schema: updatedReply },
      201: { description: 'The preference center was created with this id.', schema: createdReply },
    },
    refusals: ['nameTaken', 'tooManyPreferenceCenters'],
    example: {
      params: { preferenceCenterExternalId: exampleId },
      body: { name: 'newsletters', ...exampleContents },
      reply: { ...exampleStamps, message: 'success' },
    },

    async handle({ workspaceId, now }, { body, params }, resources) {
      const id = centerIdOf(params);
      if (!id) {
        throw new BadRequest(invalid('preferenceCenterExternalId', 'it must be a UUID'));
      }
      const contents = await readContents(workspaceId, body, resources);
      const { database } = resources;
      const at = new Date(now);
      const updated = await updateCenter(database, { workspaceId, id, contents, now: at });
      if (updated) return { status: 200, body: updatedBody(updated) };
      const name = requireName(body);
      const created = await createUnlessThere(database, { workspaceId, id, name, contents, now: at });
      if (created) return { status: 201, body: createdBody(created) };
      // A concurrent request has created the center.
      const center = await updateCenter(database, { workspaceId, id, contents, now: at });
      return { status: 200, body: updatedBody(center!) };
    },
  };
}

interface New {
  workspaceId: string;
  id: string;
  name: string;
  contents: Contents;
  now: Date;
}

async function createUnlessThere(database: Database, center: New): Promise<PreferenceCenter | undefined> {
  const { workspaceId, id } = center;
  try {
    return await createCenter(database, center);
  } catch (error) {
    const there = await database.prisma.preferenceCenter.count({ where: { workspaceId, id } });
    if (there > 0) return undefined;
    throw error;
  }
}

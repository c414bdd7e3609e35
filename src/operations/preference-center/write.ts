import { ApiError, BadRequest } from '../../errors.ts';
import type { Prisma } from '../../generated/prisma/client.ts';
import type { Json } from '../../profile/json.ts';
import { compile, describeError } from '../../schemas/compile.ts';
import type { Database } from '../../store/database.ts';
import type { Contents } from './contents.ts';
import { createBody } from './schemas.ts';
import type { PreferenceCenter } from './stored.ts';

const DEFAULT_TITLE = 'Preference Center';

interface New {
  workspaceId: string;
  id: string;
  name: string;
  contents: Contents;
  now: Date;
}

/**
 * Makes a center. Of two that are made at once with one name, Postgres lets one be.
 * @throws {ApiError} 400 when the name is taken
 */
export async function createCenter(
  { prisma }: Database,
  { workspaceId, id, name, contents, now }: New,
): Promise<PreferenceCenter> {
  const { options = {}, title = DEFAULT_TITLE, state = 'active', ...htmls } = contents;
  return prisma.preferenceCenter
    .create({
      data: {
        ...{ workspaceId, id, name, title, state, ...htmls },
        options: options as Prisma.InputJsonObject,
        createdAt: now,
        updatedAt: now,
      },
    })
    .catch(async (error: { code?: string }) => {
      if (error.code !== 'P2002') throw error;
      // Either key may have been in the way; only the name is something to change.
      const named = await prisma.preferenceCenter.findUnique({
        where: { workspaceId_name: { workspaceId, name } },
      });
      throw named ? new ApiError('nameTaken', name) : error;
    });
}

/** Changes a center; undefined when there is none with this id. */
export async function updateCenter(
  { prisma }: Database,
  workspaceId: string,
  id: string,
  { options, ...contents }: Contents,
  now: Date,
): Promise<PreferenceCenter | undefined> {
  const [updated] = await prisma.preferenceCenter.updateManyAndReturn({
    where: { workspaceId, id },
    data: { ...contents, ...(options && { options: options as Prisma.InputJsonObject }), updatedAt: now },
  });
  return updated;
}

const checkNew = compile(createBody);

/** The name of a center that is to be made under an id of the caller's. @throws {BadRequest} */
export function requireName(body: Record<string, Json>): string {
  if (!checkNew(body)) throw new BadRequest(describeError(checkNew.errors![0]!));
  return body.name as string;
}

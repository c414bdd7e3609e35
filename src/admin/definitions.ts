import type { Prisma, Segment } from '../generated/prisma/client.ts';
import { newId } from '../platform/ids.ts';
import type { Definition } from '../profile/segment.ts';
import type { Database } from '../store/database.ts';
import { refuseTaken } from './command.ts';
import { change } from './installation.ts';

interface NewSegment {
  /** Id of the segment; a new id if absent. */
  id?: string | undefined;
  workspaceId: string;
  name: string;
  purpose: string;
  definition: Definition;
}

/**
 * Creates a segment.
 * @throws {Refusal} if the name is taken
 */
export function createSegment(
  database: Database,
  { id = newId(), workspaceId, name, purpose, definition }: NewSegment,
): Promise<Segment> {
  return change(database, async (tx) => ({
    result: await tx.segment.create({
      data: { id, workspaceId, name, purpose, definition: definition as Prisma.InputJsonObject },
    }),
    entries: [{ action: 'segments.create', subject: { kind: 'segment', id }, workspaceId, detail: { name } }],
  })).catch(refuseTakenSegment(name));
}

export const refuseTakenSegment = (name: string) =>
  refuseTaken(
    `this workspace already has a segment with the name '${name}' (archived segments keep their names)`,
  );

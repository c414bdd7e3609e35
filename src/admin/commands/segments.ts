import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import type { Prisma } from '../../generated/prisma/client.ts';
import { NIL_UUID } from '../../platform/ids.ts';
import { takePage } from '../../platform/paging.ts';
import { toServiceId } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import {
  type Definition,
  describe,
  InvalidDefinition,
  MAX_DEFINITION_CHARACTERS,
  readDefinition,
} from '../../profile/segment.ts';
import { exports as described } from '../../resources/exports.ts';
import { keyset, rowOf as rowOfColumns } from '../../resources/resource.ts';
import type { Database } from '../../store/database.ts';
import { listExports } from '../../store/segment-exports.ts';
import { evaluateUsers } from '../../store/segments.ts';
import { addNoun, addVerb, PENSTOCK, parseCount, parseId, parseName, Refusal } from '../command.ts';
import { createSegment, refuseTakenSegment } from '../definitions.ts';
import { change, findWorkspace, withInstallation } from '../installation.ts';
import { addList, printPage, printRow, type Row } from '../output.ts';
import { addOwnerVerb } from '../resource-commands.ts';

/** Users per statement, so that each statement takes only a few hundredths of a second. */
const PAGE = 5000;

const MAX_PURPOSE = 1000;

export function addSegments(program: Command): void {
  const noun = addNoun(program, 'segments', {
    sentence:
      'Manage segments: named filters over the users of a workspace. Count and list the users who match.',
    example: 'segments list --workspace default',
  });
  const definition = '--definition <json>';
  const words = 'the filter as JSON (docs/segments.md), or @ and the path of a file with it';
  addVerb(noun, 'create', {
    sentence: 'Create a segment and show its id, which clients send as segment_id.',
    example: `segments create --workspace default --name Everyone --definition '{"all":[]}'`,
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .requiredOption('--name <name>', 'name, unique among the segments of the workspace', parseName)
    .requiredOption(definition, words, parseDefinition)
    .option('--purpose <text>', 'purpose, in your own words', parsePurpose, '')
    .action(create);
  addVerb(noun, 'update', {
    sentence: 'Change the filter, name or purpose of a segment.',
    example: `segments update 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f --name Readers`,
  })
    .argument('<id>', 'id of the segment', parseId)
    .option('--name <name>', 'new name', parseName)
    .option(definition, words, parseDefinition)
    .option('--purpose <text>', 'purpose, in your own words', parsePurpose)
    .action(update);
  addList(noun, {
    one: 'segment',
    many: 'segments',
    sentence: 'List the segments, oldest first, including archived ones.',
    example: 'segments list --workspace default --json',
    owner: 'workspace',
    list: ({ database }, page) =>
      database.prisma.segment.findMany({ ...keyset('workspaceId', page), include: named }),
    rowOf,
    cellsOf: ({ id, workspace, name, definition: filter, archivedAt }) => ({
      ...{
        segment_id: id,
        workspace: workspace.name,
        name,
        filter: describe(filter as unknown as Definition),
      },
      archived_at: archivedAt?.toISOString() ?? null,
    }),
  });
  addVerb(noun, 'preview', {
    sentence: 'Count the users who match a segment or an unsaved filter now, and show some of them.',
    example: `segments preview --workspace default --definition '{"attribute":"country","equals":"DE"}'`,
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--segment <id>', 'id of a segment', parseId)
    .option(definition, words, parseDefinition)
    .option('--sample <number>', 'maximum number of users to show', parseCount, 10)
    .action(preview);
  addVerb(noun, 'exports', {
    sentence: 'List the exports requested with POST /users/export/segment, newest first, with their errors.',
    example: 'segments exports --workspace default',
  })
    .requiredOption('--workspace <workspace>', 'name or id of the workspace')
    .option('--limit <number>', 'maximum number of exports to show', parseCount, 50)
    .option('--after <id>', 'start after this export (paging)', parseId)
    .action(exports);
  addOwnerVerb(noun, described, described.creation!);
  addVerb(noun, 'archive', {
    sentence: 'Archive a segment permanently. It can no longer be used, and its name stays reserved.',
    example: 'segments archive 019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f',
  })
    .argument('<id>', 'id of the segment', parseId)
    .action(archive);
}

/** @throws {Refusal} with the position and the violated rule */
function parseDefinition(text: string): Definition {
  let given: Json;
  try {
    const json = text.startsWith('@') ? readFileSync(text.slice(1), 'utf8') : text;
    if (json.length > MAX_DEFINITION_CHARACTERS)
      throw new Error(`a definition can have at most ${MAX_DEFINITION_CHARACTERS} characters`);
    given = JSON.parse(json) as Json;
  } catch (error) {
    throw new Refusal(`--definition cannot be read as JSON: ${(error as Error).message}`);
  }
  try {
    return readDefinition(given);
  } catch (error) {
    throw error instanceof InvalidDefinition ? new Refusal(error.message) : error;
  }
}

function parsePurpose(text: string): string {
  if (text.length > MAX_PURPOSE) throw new Refusal(`--purpose must have at most ${MAX_PURPOSE} characters`);
  return text.replaceAll('\u0000', '').toWellFormed();
}

interface Given {
  workspace: string;
  name: string;
  definition: Definition;
  purpose: string;
  json?: boolean;
}

async function create({ workspace, name, definition, purpose, json }: Given): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId, name: workspaceName } = await findWorkspace(database, workspace);
    const segment = await createSegment(database, { workspaceId, name, purpose, definition });
    printRow(json, rowOf({ ...segment, workspace: { name: workspaceName } }));
  });
}

async function update(id: string, { name, definition, purpose, json }: Partial<Given>): Promise<void> {
  if (name === undefined && definition === undefined && purpose === undefined)
    throw new Refusal('nothing to change: set --name, --definition or --purpose');
  await withInstallation(async ({ database }) => {
    const segment = await change(database, async (tx) => {
      const given = {
        ...(name !== undefined && { name }),
        ...(purpose !== undefined && { purpose }),
        ...(definition !== undefined && { definition: definition as Prisma.InputJsonObject }),
      };
      const { count } = await tx.segment.updateMany({
        where: { id, archivedAt: null },
        data: { ...given, updatedAt: new Date() },
      });
      if (count === 0) throw unknown(id);
      const updated = await tx.segment.findFirstOrThrow({ where: { id }, include: named });
      const { workspaceId } = updated;
      const subject = { kind: 'segment', id };
      const detail = { changed: Object.keys(given) };
      return { result: updated, entries: [{ action: 'segments.update', subject, workspaceId, detail }] };
    }).catch(refuseTakenSegment(name ?? ''));
    printRow(json, rowOf(segment));
  });
}

interface PreviewOptions {
  workspace: string;
  segment?: string;
  definition?: Definition;
  sample: number;
  json?: boolean;
}

async function preview({ workspace, segment, definition, sample, json }: PreviewOptions): Promise<void> {
  if ((segment === undefined) === (definition === undefined))
    throw new Refusal('set either --segment or --definition');
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    const filter = definition ?? (await definitionOf(database, workspaceId, segment!));
    const totals = { users: 0, matched: 0, ids: [] as string[] };
    for (let after: string | undefined = NIL_UUID; after !== undefined; ) {
      const wanted = sample - totals.ids.length;
      const part = { workspaceId, definition: filter, after, limit: PAGE, sample: wanted };
      const evaluated = await evaluateUsers(database.pool, part);
      totals.users += evaluated.read;
      totals.matched += evaluated.matched;
      totals.ids.push(...evaluated.sample);
      after = evaluated.read < PAGE ? undefined : evaluated.last;
    }
    printRow(json, {
      ...{ filter: describe(filter), users: totals.users, matched: totals.matched },
      sample: totals.ids.map(toServiceId),
    });
  });
}

async function definitionOf({ prisma }: Database, workspaceId: string, id: string): Promise<Definition> {
  const segment = await prisma.segment.findFirst({ where: { id, workspaceId } });
  if (segment === null) throw unknown(id);
  return segment.definition as unknown as Definition;
}

interface ExportsOptions {
  workspace: string;
  limit: number;
  after?: string;
  json?: boolean;
}

async function exports({ workspace, limit, after, json }: ExportsOptions): Promise<void> {
  await withInstallation(async ({ database }) => {
    const { id: workspaceId } = await findWorkspace(database, workspace);
    const listed = await listExports(database, workspaceId, { before: after, limit: limit + 1 });
    const { rows: shown, next } = takePage(listed, limit, ({ id }) => id);
    const rows = shown.map((one) => rowOfColumns(described, { ...one, workspaceId }));
    printPage(json, 'exports', { rows, next });
  });
}

async function archive(id: string, { json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database }) => {
    const segment = await change(database, async (tx) => {
      // The condition on archivedAt keeps the time of the first archiving.
      const { count } = await tx.segment.updateMany({
        where: { id, archivedAt: null },
        data: { archivedAt: new Date() },
      });
      const archived = await tx.segment.findFirst({ where: { id }, include: named });
      if (archived === null) throw unknown(id);
      const { workspaceId, name } = archived;
      const entry = { subject: { kind: 'segment', id }, workspaceId, detail: { name } };
      return { result: archived, entries: count === 0 ? [] : [{ action: 'segments.archive', ...entry }] };
    });
    printRow(json, rowOf(segment));
  });
}

const unknown = (id: string) => new Refusal(`no segment has the id ${id}; see ${PENSTOCK} segments list`);

const named = { workspace: { select: { name: true } } } satisfies Prisma.SegmentInclude;

function rowOf(segment: Prisma.SegmentGetPayload<{ include: typeof named }>): Row {
  return {
    segment_id: segment.id,
    workspace: segment.workspace.name,
    name: segment.name,
    purpose: segment.purpose,
    definition: segment.definition as Json,
    created_at: segment.createdAt.toISOString(),
    updated_at: segment.updatedAt.toISOString(),
    archived_at: segment.archivedAt?.toISOString() ?? null,
  };
}

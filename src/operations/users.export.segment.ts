import { randomUUID } from 'node:crypto';
import { parse, stringify } from 'uuid';
import { ApiError, BadRequest } from '../errors.ts';
import { refusalOfUrl } from '../platform/outgoing.ts';
import { signedTokens } from '../preferences/link.ts';
import type { Json } from '../profile/json.ts';
import { refuse, required } from '../profile/refusal.ts';
import { findUnstorable, uuidOf } from '../profile/values.ts';
import type { Schema } from '../schemas/compile.ts';
import type { Database } from '../store/database.ts';
import { requireLinkKey } from '../store/preference-centers.ts';
import { MAX_OPEN_EXPORTS, type NewSegmentExport, requestSegmentExport } from '../store/segment-exports.ts';
import { findSegment } from '../store/segments.ts';
import { userFields } from './export/user-fields.ts';
import type { DirectOperation, DownloadSettings } from './operation.ts';
import { EXAMPLE_SEGMENT } from './segments.details.ts';

/** Lifetime of a download link in hours, from the time at which the export is complete. */
export const LINK_HOURS = 4;

/** Number of days before today from which events and purchases are exported. */
export const RECENT_DAYS = 90;

const MAX_FIELDS = 200;
const MAX_ATTRIBUTES = 500;

/**
 * POST /users/export/segment: stores a request to export all users of a segment. A sync process writes the files.
 *
 * @param serviceIdField wire name of the service id
 */
export function usersExportSegment(serviceIdField: string): DirectOperation {
  const fieldNames = Object.keys(userFields(serviceIdField));

  return {
    kind: 'direct',
    id: 'users.export.segment',
    method: 'POST',
    path: '/users/export/segment',
    permission: 'users.export.segment',
    bucket: 'default',
    summary: 'Export the users of a segment',
    description: `Exports all users of a segment, as of one moment, as files with one JSON object per line. The files are written after the answer. If this installation exports to a bucket, there is one file per 5,000 users; its name starts with \`segment-export/SEGMENT_ID/YYYY-MM-DD/\` and the \`object_prefix\`. Otherwise there is one ZIP file at \`url\`, which answers 404 until the file is complete and can be downloaded for ${LINK_HOURS} hours after that. One export per segment and ${MAX_OPEN_EXPORTS} per workspace can run at a time. \`custom_events\` and \`purchases\` list the last ${RECENT_DAYS} days, with the counts of all time. Fields without data are omitted.`,
    body: bodySchema(fieldNames),
    replies: { 201: { description: 'The export will be made.', schema: replySchema } },
    refusals: ['unknownSegment', 'exportRunning', 'tooManyExports'],
    example: {
      body: {
        segment_id: EXAMPLE_SEGMENT,
        callback_endpoint: 'https://app.example/exported',
        fields_to_export: ['external_id', 'email', 'purchases'],
        output_format: 'zip',
      },
      reply: {
        message: 'success',
        object_prefix: 'bb8e2a91-c4aa-478b-b3f2-a4ee91731ad1-1769861045',
        url: 'https://penstock.example/exports/AAEBnBPsoWl7fpVJ8Vf0Ixk',
      },
    },

    async handle({ workspaceId, requestId: id, now }, { body }, { database, downloads }) {
      const segmentId = uuidOf(textOf(body, 'segment_id') ?? requireField('segment_id'));
      const chosen = chooseFields(body, fieldNames);
      const callback = readCallback(body);
      const segment = segmentId && (await findSegment(database.pool, workspaceId, segmentId));
      if (!segmentId || !segment) throw new ApiError('unknownSegment');
      const wanted = { workspaceId, id, segmentId, callback, ...chosen, now };
      const made = await requestSegmentExport(
        database.pool,
        await prepareExport(
          { database, downloads },
          { ...wanted, outputFormat: body.output_format === 'gzip' ? 'gzip' : 'zip' },
        ),
      );
      if (made === 'running') throw new ApiError('exportRunning');
      if (made === 'many') throw new ApiError('tooManyExports');
      return {
        status: 201,
        body: {
          message: 'success',
          object_prefix: made.objectPrefix,
          ...(made.url !== null && { url: made.url }),
        },
      };
    },
  };
}

type WantedExport = Omit<NewSegmentExport, 'url' | 'objectPrefix'> & { now: number };

/** Completes a wanted export with its download link and the prefix of its files. */
export async function prepareExport(
  { database, downloads }: { database: Database; downloads: DownloadSettings },
  { now, ...wanted }: WantedExport,
): Promise<NewSegmentExport> {
  const { workspaceId, id: exportId, outputFormat } = wanted;
  const url = downloads.isBucket
    ? null
    : downloads.urlOf(signDownload({ workspaceId, exportId }, await requireLinkKey(database, workspaceId)));
  return {
    ...{ ...wanted, url },
    objectPrefix: `${randomUUID()}-${Math.floor(now / 1000)}`,
    // A download link always leads to a ZIP file.
    outputFormat: downloads.isBucket ? outputFormat : 'zip',
  };
}

function requireField(name: string): never {
  throw new BadRequest(required(name));
}

/** Reads a text. Clients send null and an empty text for none. */
function textOf(body: Record<string, Json>, name: string): string | undefined {
  const value = body[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function readCallback(body: Record<string, Json>): string | null {
  const callback = textOf(body, 'callback_endpoint');
  if (callback === undefined) return null;
  const whyNot =
    refusalOfUrl(callback) ?? (findUnstorable(callback) && 'must not have NUL or half a character');
  if (whyNot) throw new BadRequest(refuse('invalid', 'callback_endpoint', `'callback_endpoint' ${whyNot}`));
  return callback;
}

/**
 * Returns the requested fields. Unknown names are ignored, because clients also request fields of other services.
 * @throws {BadRequest} if no known field is left
 */
function chooseFields(body: Record<string, Json>, fieldNames: string[]) {
  const named = new Set(body.fields_to_export as string[] | null | undefined);
  const wanted = (body.custom_attributes_to_export ?? []) as string[];
  if (named.size === 0) requireField('fields_to_export');
  const fields = fieldNames.filter((name) => named.has(name));
  const all = named.has('custom_attributes');
  if (!all && wanted.length > 0) fields.push('custom_attributes');
  if (fields.length === 0)
    throw new BadRequest(
      refuse(
        'invalid',
        'fields_to_export',
        `'fields_to_export' names no field of a user; there are ${fieldNames.join(', ')}`,
      ),
    );
  const attributes = wanted.filter((name) => !findUnstorable(name));
  return { fields, attributes: all || wanted.length === 0 ? null : attributes };
}

function bodySchema(fieldNames: string[]): Schema {
  return {
    type: 'object',
    properties: {
      segment_id: {
        type: ['string', 'null'],
        description: 'Required. An id from `/segments/list`.',
        rule: 'it must be a string',
      },
      callback_endpoint: {
        type: ['string', 'null'],
        description:
          'URL to which `{"success": true}` is posted after the files are complete, together with the `url` if there is one.',
        rule: 'it must be a string',
      },
      fields_to_export: {
        type: ['array', 'null'],
        maxItems: MAX_FIELDS,
        items: { type: 'string', rule: 'it must be a string' },
        description: `Fields to export, at least one. Known: ${fieldNames.join(', ')}. Other names are ignored.`,
        rule: `it must be an array of at most ${MAX_FIELDS} strings`,
      },
      custom_attributes_to_export: {
        type: ['array', 'null'],
        maxItems: MAX_ATTRIBUTES,
        items: { type: 'string', rule: 'it must be a string' },
        description:
          'Names of custom attributes to export. If the fields contain `custom_attributes`, all are exported.',
        rule: `it must be an array of at most ${MAX_ATTRIBUTES} strings`,
      },
      output_format: {
        enum: ['zip', 'gzip', null],
        description: 'Format of files in a bucket, by default `zip`. A file at `url` is always a ZIP file.',
        rule: "it must be 'zip' or 'gzip'",
      },
    },
  };
}

const replySchema: Schema = {
  type: 'object',
  required: ['message', 'object_prefix'],
  properties: {
    message: { const: 'success' },
    object_prefix: {
      type: 'string',
      description: 'A random UUID and the second of the request. Names of the files start with it.',
    },
    url: {
      type: 'string',
      description: 'URL of the file. Absent if exports go to a bucket. The download needs no API key.',
    },
  },
};

/** The content of a download link. The store has the times between which the link is valid. */
interface DownloadLink {
  workspaceId: string;
  exportId: string;
}

/** Version of the format of the content. Increase it when the format changes. */
const VERSION = 1;

const CONTENT = 2 + 2 * 16;

const tokens = signedTokens({ bytes: CONTENT, kind: 'segment-export ' });

/** Returns the last part of the link's path, signed with the key of the workspace. */
export function signDownload({ workspaceId, exportId }: DownloadLink, secret: Uint8Array): string {
  const content = Buffer.alloc(CONTENT);
  content.writeUInt16BE(VERSION, 0);
  content.set(parse(workspaceId), 2);
  content.set(parse(exportId), 18);
  return tokens.sign(content, secret);
}

/** Decodes a token without verifying its signature. Returns undefined if it is not a token of a download. */
export function readDownload(token: string): DownloadLink | undefined {
  const bytes = tokens.read(token);
  if (bytes?.readUInt16BE(0) !== VERSION) return undefined;
  try {
    return { workspaceId: stringify(bytes, 2), exportId: stringify(bytes, 18) };
  } catch {
    // The bytes are not a valid UUID.
    return undefined;
  }
}

export const isSignedDownload = tokens.isSigned;

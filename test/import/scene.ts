import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { crc32, deflateRawSync } from 'node:zlib';
import { type ImportType, parseMap } from '../../src/import/mapping.ts';
import { openInput } from '../../src/import/open-input.ts';
import type { Layout } from '../../src/import/reader.ts';
import { createRowValidator, mapRows, validateRows } from '../../src/import/rows.ts';
import type { VendorName } from '../../src/import/vendor.ts';
import type { Caller } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { callerOf } from '../operations/caller.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

/** Writes a file with this content to a new folder. */
export function fileOf(name: string, content: string | Buffer): string {
  const file = path.join(temporaryFolder('penstock-import-'), name);
  writeFileSync(file, content);
  return file;
}

export interface ReadOptions {
  type?: ImportType;
  layout?: Layout;
  map?: string;
  ignore?: string[];
  delimiter?: string;
  vendor?: VendorName;
  caller?: Partial<Caller>;
}

/**
 * Reads the rows of a file without a server. @returns the objects as they would be sent, accepted ones, and
 * rejected rows
 */
export async function readRows(file: string, options: ReadOptions = {}) {
  const { type = 'users', layout = 'csv', map, ignore = [], delimiter, caller, vendor } = options;
  const validateRow = createRowValidator({
    serviceIdField: 'service_id',
    longStrings: 'cut',
    updateExistingOnly: false,
  });
  const input = await openInput(file, { scratchBytes: 100_000_000 });
  const sent: Json[] = [];
  const result = {
    sent,
    accepted: [] as Json[],
    refused: [] as { row: number; field: string | null; reason: string }[],
  };
  try {
    const rules = {
      type,
      layout,
      ignore,
      delimiter,
      vendor,
      map: map ? parseMap(map) : [],
      serviceIdField: 'service_id',
    };
    for await (const rows of mapRows({ input, options: rules })) {
      for (const row of rows) sent.push(...(row.sent ?? []).map(({ object }) => object));
      const judged = validateRows(
        rows,
        validateRow,
        callerOf('019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f', caller),
      );
      result.accepted.push(...(judged.objects as unknown as Json[]));
      result.refused.push(...judged.refused.map(({ row, field, reason }) => ({ row, field, reason })));
    }
    return result;
  } finally {
    await input.close();
  }
}

export interface ZippedFile {
  name: string;
  content: string | Buffer;
  /** Content that the archive declares, if it differs from the packed content. */
  announced?: Buffer;
  flags?: number;
}

/** Writes a zip archive like any other program. */
export function zipOf(files: readonly ZippedFile[]): Buffer {
  const heads: Buffer[] = [];
  const list: Buffer[] = [];
  let at = 0;
  for (const { name, content, announced = Buffer.from(content), flags = 0 } of files) {
    const packed = deflateRawSync(content);
    const fixed = Buffer.alloc(26);
    fixed.writeUInt16LE(20, 0);
    fixed.writeUInt16LE(flags, 2);
    fixed.writeUInt16LE(8, 4);
    fixed.writeUInt32LE(crc32(announced), 10);
    fixed.writeUInt32LE(packed.length, 14);
    fixed.writeUInt32LE(announced.length, 18);
    fixed.writeUInt16LE(Buffer.byteLength(name), 22);
    const position = Buffer.alloc(14);
    position.writeUInt32LE(at, 10);
    const head = Buffer.concat([Buffer.from('PK\x03\x04', 'latin1'), fixed, Buffer.from(name), packed]);
    heads.push(head);
    list.push(
      Buffer.concat([Buffer.from('PK\x01\x02\x14\x00', 'latin1'), fixed, position, Buffer.from(name)]),
    );
    at += head.length;
  }
  const end = Buffer.alloc(18);
  end.writeUInt16LE(files.length, 4);
  end.writeUInt16LE(files.length, 6);
  end.writeUInt32LE(Buffer.concat(list).length, 8);
  end.writeUInt32LE(at, 12);
  return Buffer.concat([...heads, ...list, Buffer.from('PK\x05\x06', 'latin1'), end]);
}

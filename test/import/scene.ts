import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { openInput } from '../../src/import/input.ts';
import { createJudges } from '../../src/import/judge.ts';
import { type ImportType, parseMap } from '../../src/import/mapping.ts';
import type { Layout } from '../../src/import/reader.ts';
import { judgeRows, mapRows } from '../../src/import/rows.ts';
import type { Caller } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { callerOf } from '../operations/caller.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

/** A file of these bytes, in a folder of its own. */
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
  caller?: Partial<Caller>;
}

/** What a file's rows become, without a server: objects as they would be sent, accepted ones, and refused rows. */
export async function readRows(file: string, options: ReadOptions = {}) {
  const { type = 'users', layout = 'csv', map, ignore = [], delimiter, caller } = options;
  const judge = createJudges({ serviceIdField: 'service_id', longStrings: 'cut', updateExistingOnly: false })[
    type
  ];
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
      map: map ? parseMap(map) : [],
      serviceIdField: 'service_id',
    };
    for await (const rows of mapRows({ input, options: rules })) {
      for (const { object } of rows) if (object) sent.push(object);
      const judged = judgeRows(rows, judge, callerOf('019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f', caller));
      result.accepted.push(...(judged.objects as unknown as Json[]));
      result.refused.push(...judged.refused.map(({ row, field, reason }) => ({ row, field, reason })));
    }
    return result;
  } finally {
    await input.close();
  }
}

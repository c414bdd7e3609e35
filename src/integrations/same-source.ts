import type { SourceDefinition } from './definition.ts';

/** Whether the rows of two definitions are the same: another way to the same table is none of a second one. */
export function isSameSource(one: SourceDefinition, other: SourceDefinition): boolean {
  return keyOf(one) === keyOf(other);
}

function keyOf(source: SourceDefinition): string {
  switch (source.type) {
    case 'postgres': {
      const { host, port, database, table } = source;
      // What Postgres finds without a schema is in this one, unless somebody has changed that.
      return JSON.stringify([
        host.toLowerCase(),
        port,
        database,
        table.replace(/^public\./i, '').toLowerCase(),
      ]);
    }
    case 'folder':
      return JSON.stringify([source.path, source.format]);
    case 's3':
      return JSON.stringify([source.endpoint ?? '', source.bucket, source.prefix, source.format]);
  }
}

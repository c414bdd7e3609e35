import { describe, expect, test } from 'vitest';
import { isSameSource, type SourceDefinition } from '../../src/integrations/source.ts';

const postgres = {
  type: 'postgres',
  host: 'dwh',
  port: 5432,
  database: 'dwh',
  table: 'users',
  tls: 'on',
} as const;
const s3 = { type: 's3', bucket: 'exports', prefix: 'users/', region: 'eu-west-1', format: 'csv' } as const;
const folder = { type: 'folder', path: '/exports', format: 'csv' } as const;

describe('two definitions', () => {
  test.each<[SourceDefinition, SourceDefinition]>([
    [postgres, { ...postgres, host: 'DWH', table: 'public.users', tls: 'off' }],
    [s3, { ...s3, region: 'elsewhere' }],
    [folder, { ...folder }],
  ])('%j and %j are the same table', (one, other) => {
    expect(isSameSource(one, other)).toBe(true);
  });

  test.each<[SourceDefinition, SourceDefinition]>([
    [postgres, { ...postgres, table: 'exports.users' }],
    [postgres, { ...postgres, port: 5433 }],
    [s3, { ...s3, prefix: 'events/' }],
    [s3, { ...s3, endpoint: 'https://s3.example' }],
    [folder, { ...folder, format: 'parquet' }],
    [folder, { ...folder, path: '/other' }],
  ])('%j and %j are different tables', (one, other) => {
    expect(isSameSource(one, other)).toBe(false);
  });
});

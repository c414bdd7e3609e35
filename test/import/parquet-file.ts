import { DuckDBInstance } from '@duckdb/node-api';
import { fileOf } from './scene.ts';

/** Writes the result of a select to a Parquet file. */
export async function parquetOf(select: string): Promise<string> {
  const file = fileOf('rows.parquet', '');
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  await connection.run(
    `copy (${select}) to '${file}' (format parquet, compression zstd, row_group_size 100000)`,
  );
  connection.closeSync();
  instance.closeSync();
  return file;
}

import type { DuckDBConnection } from '@duckdb/node-api';
import { brokenRow } from '../columns.ts';
import type { SourceRow } from '../source.ts';
import { withNames } from './errors.ts';
import type { InputFile } from './input-files.ts';

/**
 * The lines that could not be read, as rows; each with its file, its number among the records of the file, the rule that
 * it breaks and what stood there. They are known when everything has been read.
 */
export async function* readRejects(
  connection: DuckDBConnection,
  files: readonly InputFile[],
): AsyncGenerator<SourceRow[]> {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const result = await connection.stream(`
    select scans.file_path, errors.line::varchar,
      first(errors.error_message order by errors.error_message), first(coalesce(errors.csv_line, ''))
    from reject_errors errors join reject_scans scans using (scan_id, file_id)
    group by scan_id, file_id, scans.file_path, errors.line order by scans.file_path, errors.line`);
  for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
    yield (chunk.getRows() as [string, string, string, string][]).map(([path, line, rule, text]) => {
      const number = Number(line) + (byPath.get(path)?.recordsBefore ?? 0);
      return brokenRow(withNames(`${path} line ${number}: ${rule}`, files), text);
    });
  }
}

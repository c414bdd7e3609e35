export type DuckDbModule = typeof import('@duckdb/node-api');

/**
 * DuckDB, when it is needed: most processes never load it, and an install may be without the program for its machine.
 * @throws {Error} that `toError` makes of a sentence for whoever has installed it, when it is not there
 */
export async function importDuckDb(
  toError: (message: string, options: ErrorOptions) => Error,
): Promise<DuckDbModule> {
  try {
    return await import('@duckdb/node-api');
  } catch (cause) {
    throw toError(
      'the package @duckdb/node-api, which reads and writes files of rows, is not installed for this machine: install it with npm ci --include=optional',
      { cause },
    );
  }
}

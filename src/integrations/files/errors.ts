import { SourceError } from '../source.ts';
import type { InputFile } from './input-files.ts';

/** DuckDB's words for a file that is not what its ending says; everything else may pass. */
const CONFIG =
  /^(Invalid Input|Invalid|Conversion|Binder|Parser|Catalog|Not implemented|Serialization) Error/i;

/** @returns what the owner reads, with the owner's names of the files */
export function toSourceError(error: unknown, files: readonly InputFile[]): SourceError {
  if (error instanceof SourceError) return error;
  // Behind the first paragraph, DuckDB advises whoever writes the statement, and shows it.
  const message = error instanceof Error ? error.message.split('\n\n')[0]! : String(error);
  const reason = CONFIG.test(message) ? 'config' : 'failed';
  const where = files.length === 1 ? files[0]!.name : `${files.length} files`;
  return new SourceError(reason, `${where}: ${withNames(message, files)}`, { cause: error });
}

/** A text in which files have the names that the owner knows. */
export function withNames(text: string, files: readonly InputFile[]): string {
  return files.reduce((known, { name, path }) => known.replaceAll(path, () => name), text);
}

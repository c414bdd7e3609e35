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
  if (message.includes('state machine reached an invalid state')) {
    return new SourceError(
      'config',
      `${nameAll(files)}: the lines of a CSV file must all end in the same way`,
      {
        cause: error,
      },
    );
  }
  const reason = CONFIG.test(message) ? 'config' : 'failed';
  return new SourceError(reason, `${nameAll(files)}: ${withNames(message, files)}`, { cause: error });
}

export function nameAll(files: readonly InputFile[]): string {
  const [first, ...others] = new Set(files.map(({ name }) => name));
  return others.length === 0 ? first! : `${first} and ${others.length} more`;
}

/** A text in which files have the names that the owner knows. */
export function withNames(text: string, files: readonly InputFile[]): string {
  return files.reduce((known, { name, path }) => known.replaceAll(path, () => name), text);
}

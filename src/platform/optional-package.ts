import { codeOf } from './format.ts';

/** Codes of the errors with which Node fails to load a package or its native part. */
const LOAD_FAILURES = ['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND', 'ERR_DLOPEN_FAILED'];

export interface OptionalPackage {
  /** Name of the npm package. */
  name: string;
  /** Features that need the package, as a plural subject: `Parquet files`. */
  users: string;
  /** Alternative to the installation, appended to the message. */
  alternative?: string;
}

/** Builds the sentence that names the features, the missing package and the command that installs it. */
export function missingPackage({ name, users, alternative = '' }: OptionalPackage): string {
  return `${users} need the package ${name}, which is not installed; install it with npm install --include=optional${alternative}`;
}

/**
 * Runs an import that needs an optional package. npm omits these packages with `--omit=optional` and on machines that a
 * package does not support, so no module may import them when a process starts.
 * @param toError makes the caller's error from the message of `missingPackage`
 */
export async function importOptional<Module>(
  wanted: OptionalPackage,
  load: () => Promise<Module>,
  toError = (message: string, options: ErrorOptions) => new Error(message, options),
): Promise<Module> {
  try {
    return await load();
  } catch (cause) {
    if (!LOAD_FAILURES.includes(codeOf(cause) ?? '')) throw cause;
    throw toError(missingPackage(wanted), { cause });
  }
}

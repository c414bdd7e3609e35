import { homedir } from 'node:os';
import path from 'node:path';

// biome-ignore lint/style/noProcessEnv: only this file reads the environment
const env = () => process.env;

/**
 * Returns all variables, for config.ts, which validates the settings. Variables that are not settings are
 * read by the functions below.
 */
export const wholeEnvironment = (): NodeJS.ProcessEnv => env();

/** Returns the npm command and the npm script that started this program. */
export const startedByNpm = () => ({
  command: env().npm_command,
  script: env().npm_lifecycle_event,
});

/** Returns a variable whose name an operator has configured, for example one with a secret. */
export const variableNamed = (name: string): string | undefined => env()[name];

/** Returns PATH, for a child process that gets no other variable. */
export const searchPath = () => env().PATH;

/** Returns the environment of this process with the given values added or replaced, for a child process. */
export const environmentWith = (values: Record<string, string>): NodeJS.ProcessEnv => ({
  ...env(),
  ...values,
});

/** Returns the environment of this process with defaults for variables that are not set. */
export const environmentOver = (defaults: Record<string, string>): NodeJS.ProcessEnv => ({
  ...defaults,
  ...env(),
});

/** The folder in which programs of this user keep files that they can create again. */
export const cacheFolder = (): string =>
  env().XDG_CACHE_HOME || path.join(homedir(), process.platform === 'darwin' ? 'Library/Caches' : '.cache');

/**
 * Variables that programs need to run, or that name folders and languages. Penstock has no setting with one
 * of these names.
 */
const SYSTEM_VARIABLE = /^(?:PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|LANG|LC_\w+|TZ|XDG_\w+|NODE_COMPILE_CACHE)$/;

/** Returns the variables of the system, for a program that must get no settings of this process. */
export const systemVariables = (): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(env()).filter(([name]) => SYSTEM_VARIABLE.test(name)));

import { homedir } from 'node:os';
import path from 'node:path';

// biome-ignore lint/style/noProcessEnv: all that anybody may ask of the environment stands in this file
const ours = () => process.env;

/** For config.ts, which checks the settings in it; what is no setting is asked for below, by what it is for. */
export const wholeEnvironment = (): NodeJS.ProcessEnv => ours();

/** By which command and which script npm has started this program. */
export const startedByNpm = () => ({
  command: ours().npm_command,
  script: ours().npm_lifecycle_event,
});

/** A variable that a person has named, for a secret of theirs; undefined: there is none. */
export const variableNamed = (name: string): string | undefined => ours()[name];

/** Where programs are found, for one that gets nothing else of the environment. */
export const searchPath = () => ours().PATH;

/** What a process gets that this one starts: all that this one has, with these settings. */
export const environmentWith = (values: Record<string, string>): NodeJS.ProcessEnv => ({
  ...ours(),
  ...values,
});

/** The environment of this process, and a default for each of the values that it does not have. */
export const environmentOver = (defaults: Record<string, string>): NodeJS.ProcessEnv => ({
  ...defaults,
  ...ours(),
});

/** The folder in which programs of this user keep files that they can create again. */
export const cacheFolder = (): string =>
  ours().XDG_CACHE_HOME || path.join(homedir(), process.platform === 'darwin' ? 'Library/Caches' : '.cache');

/** Variables that programs need to run, or that name folders and languages. None is a setting. */
const OF_THE_SYSTEM = /^(?:PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|LANG|LC_\w+|TZ|XDG_\w+|NODE_COMPILE_CACHE)$/;

/** Returns the variables of the system, for a program that must get no settings of this process. */
export const systemVariables = (): NodeJS.ProcessEnv =>
  Object.fromEntries(Object.entries(ours()).filter(([name]) => OF_THE_SYSTEM.test(name)));

import path from 'node:path';

/** The files of the command; within another program it has its plain name. */
const OWN_FILES = ['cli.js', 'penstock'];

/**
 * How the person at the command line has called this command, so that what a hint says can be typed as it stands: by
 * npx or npm run in the project's folder, or by its name where that is on the PATH.
 */
export const PENSTOCK = OWN_FILES.includes(path.basename(process.argv[1] ?? ''))
  ? commandName(process.env.npm_command)
  : 'penstock';

function commandName(npmCommand: string | undefined): string {
  if (npmCommand === 'exec') return 'npx penstock';
  if (npmCommand === 'run-script' || npmCommand === 'run') return 'npm run -s penstock --';
  return 'penstock';
}

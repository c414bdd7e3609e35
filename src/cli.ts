#!/usr/bin/env node
// In a clone where `npx` linked the command of an earlier release, the link starts this file directly.
import type { DevOptions } from './admin/command.ts';
import { runProgram } from './admin/program.ts';

// A reader that closes the pipe early, for example `penstock … | head`, is not an error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(0);
});

/** Runs the program of `npm start`. Never resolves, because that program exits the process itself. */
async function start(): Promise<void> {
  await import('./start.ts');
  await new Promise(() => {});
}

/** Runs `penstock dev` until a signal stops it, and exits with its exit code. */
async function dev(options: DevOptions): Promise<void> {
  const program = await import('./dev.ts');
  process.exit(await program.dev(options));
}

process.exitCode = await runProgram(process.argv.slice(2), { start, dev });
// Exit explicitly: a timer of the migration engine would keep the finished process alive for ten seconds.
process.stdout.write('', () => process.exit());

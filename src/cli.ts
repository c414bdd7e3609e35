#!/usr/bin/env node
// A clone in which `npx` linked this file as the program of an earlier release starts it directly.
import type { DevOptions } from './admin/command.ts';
import { runProgram } from './admin/program.ts';

// A reader that has seen enough (`penstock … | head`) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(0);
});

/** Runs the program of `npm start`, which exits by itself. */
async function start(): Promise<void> {
  await import('./start.ts');
  await new Promise(() => {});
}

/** Runs `penstock dev`, which stops by a signal. */
async function dev(options: DevOptions): Promise<void> {
  const program = await import('./dev.ts');
  process.exit(await program.dev(options));
}

process.exitCode = await runProgram(process.argv.slice(2), { start, dev });
// The migration engine leaves a timer behind, which would hold the finished process for ten seconds.
process.stdout.write('', () => process.exit());

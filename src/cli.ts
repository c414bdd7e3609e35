#!/usr/bin/env node
import { CommanderError } from 'commander';
import { createProgram } from './admin/program.ts';
import { describeFailure } from './admin/refusal.ts';

/** One line on stderr, whatever it was; the process ends with 1 by itself. */
function fail(text: string): void {
  process.exitCode = 1;
  const line = text.trim().replaceAll('\n', ' ');
  process.stderr.write(`${line.startsWith('error:') ? line : `error: ${line}`}\n`);
}

// A reader that has seen enough (`penstock … | head`) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(0);
});

try {
  await createProgram(fail).parseAsync();
} catch (error) {
  // Commander has said what is wrong, or shown the help, before it throws.
  if (error instanceof CommanderError) process.exitCode = error.exitCode;
  else fail(describeFailure(error));
}
// The migration engine leaves a timer behind, which would hold the finished process for ten seconds.
process.stdout.write('', () => process.exit());

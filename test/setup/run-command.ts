/** Runs a command to its end; prints an error and exits with 1. */
export async function runCommand(main: () => Promise<void>): Promise<void> {
  try {
    await main();
  } catch (error) {
    process.stderr.write(`error: ${(error as Error).stack ?? error}\n`);
    process.exitCode = 1;
  }
  // A timer of the migration engine would keep the finished process alive for ten seconds.
  process.stdout.write('', () => process.exit());
}

/**
 * Sends realistic traffic to a running Penstock and reports the results.
 *
 *   npm run load -- --key "$PENSTOCK_API_KEY" --seconds 20
 *
 * Prints requests per second, objects accepted and applied per second, the response time and the time until
 * an accepted object can be read (p50, p99, maximum), the rejected objects, the cores that the generator
 * itself used, and the number of each kind of error.
 */
import { Presets, SingleBar } from 'cli-progress';
import { resolveTarget } from './address.ts';
import { observeDatabase } from './database-observer.ts';
import { observeHttp } from './http-observer.ts';
import { type LoadArguments, readArguments } from './options.ts';
import { deleteUsers } from './probes.ts';
import { describeResult } from './report.ts';
import { type LoadOptions, runLoad } from './run-load.ts';

/** Maximum seconds to wait until all accepted objects are applied. */
const DRAIN_SECONDS = 120;

async function main(): Promise<void> {
  const given = readArguments(process.argv);
  const target = await resolveTarget(given.url, given.allowRemote);
  const observer = given.databaseUrl
    ? await observeDatabase(given.databaseUrl, given.key)
    : observeHttp(given.url, given.key, given.metricsToken);
  const bar = showProgress(given);
  try {
    const result = await runLoad({
      ...given,
      target,
      badShare: given.bad / 100,
      maxRequests: Number.POSITIVE_INFINITY,
      observer,
      probe: true,
      drainSeconds: DRAIN_SECONDS,
      onProgress: bar.update,
    });
    bar.stop();
    process.stdout.write(describeResult(result, observer));
    const users = result.probes?.users ?? [];
    if (users.length > 0) process.stdout.write(`${await describeRemoval(given, users)}\n`);
    if (result.tally.accepted === 0) process.exitCode = 1;
  } finally {
    bar.stop();
    await observer.stop();
  }
}

/** Deletes the probe users. @returns a sentence about the result for the report */
async function describeRemoval({ url, key }: LoadArguments, users: string[]): Promise<string> {
  try {
    await deleteUsers(url, key, users);
    return `${users.length} probe users deleted`;
  } catch (error) {
    const named = `${users[0]} to ${users.at(-1)}`;
    return `probe users NOT DELETED (${(error as Error).message}): delete the external ids ${named} with POST /users/delete`;
  }
}

/** Shows a progress bar on stderr if it is a terminal. */
function showProgress({ seconds }: LoadArguments) {
  const bar = new SingleBar(
    {
      format: '{bar} {value}/{total} s, {accepted} objects accepted, {errors} kinds of errors',
      stream: process.stderr,
      hideCursor: true,
    },
    Presets.shades_classic,
  );
  bar.start(seconds, 0, { accepted: 0, errors: 0 });
  const update: LoadOptions['onProgress'] = (tally, elapsed) =>
    bar.update(Math.min(seconds, Math.round(elapsed * 10) / 10), {
      accepted: tally.accepted.toLocaleString('en'),
      errors: tally.errors.size,
    });
  return { update, stop: () => bar.stop() };
}

try {
  await main();
} catch (error) {
  process.stderr.write(`error: ${(error as Error).message}\n`);
  process.exitCode = 1;
}

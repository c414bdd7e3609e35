import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command, CommanderError } from 'commander';
import { packageRoot } from '../platform/package-root.ts';
import { describeFailure, PENSTOCK } from './command.ts';
import { addAccounts } from './commands/accounts.ts';
import { addAudit } from './commands/audit.ts';
import { addCompanies, addPermissionSets, addTeams } from './commands/companies.ts';
import { addCompare } from './commands/compare.ts';
import { addCompletion } from './commands/completion.ts';
import { addDeadLetters } from './commands/dead-letters.ts';
import { addDoctor } from './commands/doctor.ts';
import { addExport } from './commands/export.ts';
import { addGroups } from './commands/groups.ts';
import { addImport } from './commands/import.ts';
import { addIntegrations } from './commands/integrations.ts';
import { addKeys } from './commands/keys.ts';
import { addLimits } from './commands/limits.ts';
import { addMigrate } from './commands/migrate.ts';
import { addPhoneNumbers } from './commands/phone-numbers.ts';
import { addPreferenceCenters } from './commands/preference-centers.ts';
import { addQueue } from './commands/queue.ts';
import { addRetention } from './commands/retention.ts';
import { addScimTokens } from './commands/scim-tokens.ts';
import { addSegments } from './commands/segments.ts';
import { addSeries } from './commands/series.ts';
import { addStatus } from './commands/status.ts';
import { addStreams } from './commands/streams.ts';
import { addUsage } from './commands/usage.ts';
import { addUsers } from './commands/users.ts';
import { addWorkers } from './commands/workers.ts';
import { addWorkspaces } from './commands/workspaces.ts';

/**
 * The `penstock` command: one noun per file of admin/commands.
 *
 * @param fail is given what Commander has to say about words that it does not understand
 */
export function createProgram(fail: (text: string) => void): Command {
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const command = new Command('penstock')
    .description(
      'Administer a Penstock: that of DATABASE_URL, else the embedded one that runs on DATA_DIR (default .penstock).',
    )
    .version(version)
    .addHelpText('after', `\nExample:\n  $ ${PENSTOCK} keys create --workspace default --permissions all`)
    .configureOutput({ outputError: fail })
    .showSuggestionAfterError(true)
    .exitOverride();
  addCompanies(command);
  addWorkspaces(command);
  addKeys(command);
  addGroups(command);
  addUsers(command);
  addPhoneNumbers(command);
  addPreferenceCenters(command);
  addAccounts(command);
  addTeams(command);
  addPermissionSets(command);
  addScimTokens(command);
  addIntegrations(command);
  addImport(command);
  addExport(command);
  addCompare(command);
  addLimits(command);
  addUsage(command);
  addSegments(command);
  addStreams(command);
  addSeries(command);
  addRetention(command);
  addAudit(command);
  addDeadLetters(command);
  addQueue(command);
  addMigrate(command);
  addStatus(command);
  addWorkers(command);
  addDoctor(command);
  addCompletion(command);
  return command;
}

/**
 * Runs one command to its end. What goes wrong stands in one line on stderr, whatever it was.
 *
 * @param words what the command line holds behind `penstock`
 * @returns the exit code
 */
export async function runProgram(words: string[]): Promise<number> {
  let code = 0;
  const fail = (text: string) => {
    code = 1;
    const line = text.trim().replaceAll('\n', ' ');
    process.stderr.write(`${line.startsWith('error:') ? line : `error: ${line}`}\n`);
  };
  try {
    await createProgram(fail).parseAsync(words, { from: 'user' });
  } catch (error) {
    // Commander has said what is wrong, or shown the help, before it throws.
    if (error instanceof CommanderError) code = error.exitCode;
    else fail(describeFailure(error));
  }
  return code;
}

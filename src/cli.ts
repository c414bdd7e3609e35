#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command, CommanderError } from 'commander';
import { addAccounts } from './admin/commands/accounts.ts';
import { addCompanies } from './admin/commands/companies.ts';
import { addDeadLetters } from './admin/commands/dead-letters.ts';
import { addGroups } from './admin/commands/groups.ts';
import { addIntegrations } from './admin/commands/integrations.ts';
import { addKeys } from './admin/commands/keys.ts';
import { addLimits } from './admin/commands/limits.ts';
import { addMigrate } from './admin/commands/migrate.ts';
import { addPermissionSets } from './admin/commands/permission-sets.ts';
import { addPreferenceCenters } from './admin/commands/preference-centers.ts';
import { addScimTokens } from './admin/commands/scim-tokens.ts';
import { addTeams } from './admin/commands/teams.ts';
import { addUsage } from './admin/commands/usage.ts';
import { addUsers } from './admin/commands/users.ts';
import { addWorkspaces } from './admin/commands/workspaces.ts';
import { describeFailure } from './admin/refusal.ts';
import { packageRoot } from './package-root.ts';

/** The `penstock` command: one noun per file of admin/commands. */
function program(): Command {
  const { version } = JSON.parse(readFileSync(path.join(packageRoot, 'package.json'), 'utf8'));
  const command = new Command('penstock')
    .description(
      'Administer a Penstock: that of DATABASE_URL, else the embedded one that runs on DATA_DIR (default .penstock).',
    )
    .version(version)
    .addHelpText('after', '\nExample:\n  $ penstock keys create --workspace default --permissions all')
    .configureOutput({ outputError: (text) => fail(text) })
    .showSuggestionAfterError(true)
    .exitOverride();
  addCompanies(command);
  addWorkspaces(command);
  addKeys(command);
  addGroups(command);
  addUsers(command);
  addPreferenceCenters(command);
  addAccounts(command);
  addTeams(command);
  addPermissionSets(command);
  addScimTokens(command);
  addIntegrations(command);
  addLimits(command);
  addUsage(command);
  addDeadLetters(command);
  addMigrate(command);
  return command;
}

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
  await program().parseAsync();
} catch (error) {
  // Commander has said what is wrong, or shown the help, before it throws.
  if (error instanceof CommanderError) process.exitCode = error.exitCode;
  else fail(describeFailure(error));
}
// The migration engine leaves a timer behind, which would hold the finished process for ten seconds.
process.stdout.write('', () => process.exit());

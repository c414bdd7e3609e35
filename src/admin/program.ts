import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Command } from 'commander';
import { packageRoot } from '../package-root.ts';
import { PENSTOCK } from './command-name.ts';
import { addAccounts } from './commands/accounts.ts';
import { addCompanies } from './commands/companies.ts';
import { addDeadLetters } from './commands/dead-letters.ts';
import { addGroups } from './commands/groups.ts';
import { addIntegrations } from './commands/integrations.ts';
import { addKeys } from './commands/keys.ts';
import { addLimits } from './commands/limits.ts';
import { addMigrate } from './commands/migrate.ts';
import { addPermissionSets } from './commands/permission-sets.ts';
import { addPreferenceCenters } from './commands/preference-centers.ts';
import { addScimTokens } from './commands/scim-tokens.ts';
import { addTeams } from './commands/teams.ts';
import { addUsage } from './commands/usage.ts';
import { addUsers } from './commands/users.ts';
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

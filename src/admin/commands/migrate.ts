import type { Command } from 'commander';
import { queueKind } from '../../queue/connection.ts';
import { addVerb } from '../command.ts';
import { withDatabase } from '../lookup.ts';
import { printJson } from '../output.ts';

export function addMigrate(program: Command): void {
  addVerb(program, 'migrate', {
    sentence: 'Bring the tables up to date, as every start and every release does; safe to repeat.',
    example: 'migrate',
  }).action(bringUpToDate);
}

async function bringUpToDate({ json }: { json?: boolean }): Promise<void> {
  await withDatabase(async ({ config, databaseUrl }) => {
    // Loaded here alone: no other command needs the migration engine.
    const { migrate, WAITS_FOR_A_TABLE } = await import('../../processes/migrate.ts');
    const applied = await migrate(databaseUrl, queueKind(config), {
      tell: (reason) => process.stderr.write(`${WAITS_FOR_A_TABLE}: ${reason}\n`),
    });
    if (json) printJson({ applied });
    else
      process.stdout.write(
        applied.map((name) => `applied ${name}\n`).join('') || 'the tables are up to date\n',
      );
  });
}

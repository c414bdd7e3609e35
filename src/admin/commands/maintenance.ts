import type { Command } from 'commander';
import { dueMonths, recountSeriesNow } from '../../resources/maintenance.ts';
import { addNoun, addVerb } from '../command.ts';
import { withDatabase } from '../installation.ts';
import { printJson } from '../output.ts';
import { addOwnerVerb } from '../resource-commands.ts';

export function addMigrate(program: Command): void {
  addVerb(program, 'migrate', {
    sentence: 'Migrate the tables to this release, as npm start and release do. Safe to repeat.',
    example: 'migrate',
  }).action(bringUpToDate);
}

async function bringUpToDate({ json }: { json?: boolean }): Promise<void> {
  await withDatabase(async ({ config, databaseUrl }) => {
    // Loaded only here, because no other command uses the migration engine.
    const { migrate, WAITS_FOR_A_TABLE } = await import('../../processes/migrate.ts');
    const applied = await migrate(config.DATABASE_DIRECT_URL || databaseUrl, config.QUEUE, {
      onRetry: (reason) => process.stderr.write(`${WAITS_FOR_A_TABLE}: ${reason}\n`),
    });
    if (json) printJson({ applied });
    else
      process.stdout.write(
        applied.map((name) => `applied ${name}\n`).join('') || 'the tables are up to date\n',
      );
  });
}

export function addSeries(program: Command): void {
  const noun = addNoun(program, 'series', {
    sentence: 'Recompute event and purchase counters.',
    example: 'series recount',
  });
  addOwnerVerb(noun, { ...dueMonths, noun: 'series' }, recountSeriesNow);
}

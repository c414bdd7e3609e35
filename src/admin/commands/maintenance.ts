import type { Command } from 'commander';
import { recountSeries } from '../../store/activity-series.ts';
import { audited } from '../../store/audit.ts';
import { addNoun, addVerb } from '../command.ts';
import { commandLine, withDatabase, withInstallation } from '../installation.ts';
import { printJson, printRow } from '../output.ts';

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
  addVerb(noun, 'recount', {
    sentence:
      'Recompute the event and purchase counters of every workspace, after an upgrade from 0.1.0 or to exclude deleted users. Lanes wait meanwhile.',
    example: 'series recount',
  }).action(recount);
}

async function recount({ json }: { json?: boolean }): Promise<void> {
  await withInstallation(async ({ database: { pool } }) => {
    const rows = await audited(pool, commandLine(), async (tx) => {
      const result = await recountSeries(tx);
      const subject = { kind: 'activity_series', id: 'all' };
      return { result, entries: [{ action: 'series.recount', subject }] };
    });
    printRow(json, { rows });
  });
}

import type { Command } from 'commander';
import { recountSeries } from '../../store/activity-series.ts';
import { audited } from '../../store/audit.ts';
import { commandLine } from '../audit.ts';
import { addNoun, addVerb } from '../command.ts';
import { withInstallation } from '../lookup.ts';
import { printRow } from '../output.ts';

export function addSeries(program: Command): void {
  const noun = addNoun(program, 'series', {
    sentence: 'Count anew what is told of events and purchases by name and by hour.',
    example: 'series recount',
  });
  addVerb(noun, 'recount', {
    sentence:
      'Count all events and purchases anew, of every workspace: after an upgrade from 0.1.0, or to leave out those of deleted users. The lanes wait meanwhile.',
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

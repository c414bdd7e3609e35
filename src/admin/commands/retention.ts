import type { Command } from 'commander';
import {
  dueMonths,
  eraseArchived,
  planRun,
  restoreArchived,
  runRetentionNow,
  withRetention,
} from '../../resources/maintenance.ts';
import { setRetention } from '../../resources/workspace-actions.ts';
import { workspaces } from '../../resources/workspaces.ts';
import type { Retention } from '../../retention/files.ts';
import { eachWorkspace, firstKept, monthsKept, readClocks } from '../../retention/plan.ts';
import { listFailures, type RetentionFailure } from '../../store/retention-runs.ts';
import { addNoun, addVerb } from '../command.ts';
import { withInstallation } from '../installation.ts';
import { printPage, type Row } from '../output.ts';
import { addOwnerVerb, contextOf } from '../resource-commands.ts';

export function addRetention(program: Command): void {
  const noun = addNoun(program, 'retention', {
    sentence: 'Keep events and purchases for a number of months, archive older months, and restore them.',
    example: 'retention show',
  });
  addVerb(noun, 'show', {
    sentence: 'Show how many months each workspace keeps, and which months are archived.',
    example: 'retention show',
  }).action(show);
  addOwnerVerb(noun, workspaces, setRetention);
  for (const one of [planRun, runRetentionNow]) addOwnerVerb(noun, dueMonths, one);
  for (const one of [restoreArchived, eraseArchived]) addOwnerVerb(noun, workspaces, one);
}

async function show({ json }: { json?: boolean }): Promise<void> {
  const list = async (retention: Retention) => {
    const rows: Row[] = [];
    const clocks = await readClocks(retention);
    const failures = new Map<string, RetentionFailure[]>();
    for await (const failure of listFailures(retention.pool))
      failures.set(failure.workspaceId, [...(failures.get(failure.workspaceId) ?? []), failure]);
    for await (const workspace of eachWorkspace(retention)) {
      const months = monthsKept(workspace, retention.months);
      rows.push({
        workspace: workspace.name,
        months: months ?? 'forever',
        set_for: workspace.own ? 'the workspace' : 'all',
        keeps_from: months === undefined ? null : firstKept(clocks, months),
        ...{ archived_months: workspace.archived, first: workspace.first, last: workspace.last },
        ...{ rows: workspace.rows, bytes: workspace.bytes, unfinished_files: workspace.unfinished },
        deletes_since: workspace.deletesSince?.toISOString() ?? null,
        failing_months: failures.get(workspace.workspaceId)?.length ?? 0,
        failure: failures.get(workspace.workspaceId)?.[0]?.reason ?? null,
      });
    }
    printPage(json, 'workspaces', { rows, next: null });
  };
  await withInstallation((installation) => withRetention(contextOf(installation), list));
}

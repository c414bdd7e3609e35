import { type Command, Option } from 'commander';
import { auditActions } from '../../store/audit.ts';
import { type AuditRow, searchAudit } from '../../store/audit-list.ts';
import { addVerb, parseCount, parseDay, parseId, Refusal } from '../command.ts';
import { findCompanyId, withInstallation } from '../installation.ts';
import { printPage, type Row } from '../output.ts';

export function addAudit(program: Command): void {
  addVerb(program, 'audit', {
    sentence:
      'Show the audit log, newest first: who did what, when and from where. Entries are kept for AUDIT_DAYS.',
    example: 'audit --action api_keys.create --from 2026-01-01 --json',
  })
    .option('--company <company>', 'only entries about this company (name or id)')
    .addOption(
      new Option('--action <action>', 'only this action, for example api_keys.create').choices(
        Object.keys(auditActions),
      ),
    )
    .option(
      '--actor <name>',
      'only entries of this actor: the full email address, or the operating system user',
    )
    .option(
      '--subject <id>',
      'only entries about this object: the id of a key, an account, a dead letter and so on',
    )
    .option('--from <day>', 'first day (UTC), for example 2026-01-31', parseDay)
    .option('--to <day>', 'last day (UTC), included', parseDay)
    .option('--limit <number>', 'maximum number of entries to show', parseCount, 50)
    .option('--after <id>', 'start after this entry (paging)', parseId)
    .action(show);
}

interface AuditOptions {
  company?: string;
  action?: string;
  actor?: string;
  subject?: string;
  from?: Date;
  to?: Date;
  limit: number;
  after?: string;
  json?: boolean;
}

const DAY_MS = 86_400_000;

async function show({ company, to, limit, after, json, ...options }: AuditOptions): Promise<void> {
  if (options.from && to && options.from > to) throw new Refusal('--from is later than --to');
  await withInstallation(async ({ database }) => {
    const { rows, next } = await searchAudit(database.pool, {
      ...options,
      companyId: await findCompanyId(database, company),
      to: to && new Date(to.getTime() + DAY_MS),
      before: after,
      limit,
    });
    printPage(json, 'entries', { rows: rows.map(rowOf), next: next ?? null });
  });
}

function rowOf(entry: AuditRow): Row {
  return {
    id: entry.id,
    at: entry.at.toISOString(),
    actor: entry.actorName || entry.actorKind,
    action: entry.action,
    subject: `${entry.subjectKind} ${entry.subjectId}`,
    workspace: entry.workspace ?? entry.workspaceId,
    via: entry.via,
    address: entry.address,
    detail: entry.detail,
  };
}

import { type AuditEntry, audited, auditedByPrisma } from '../store/audit.ts';
import { findLinkUser, type Revoked, revokeLinks } from '../store/preference-centers.ts';
import { forgetProcesses, type NamedProcess, SILENT_SECONDS } from '../store/processes.ts';
import { confirmLosses, listLosses } from '../store/queue-losses.ts';
import { Refusal } from './refusal.ts';
import type { Context } from './resource.ts';

type Stores = Pick<Context, 'database' | 'actor'>;

/** Removes processes of every kind that have sent no heartbeat for SILENT_SECONDS from the list, and returns them. */
export function forgetSilent({ database, actor }: Stores): Promise<NamedProcess[]> {
  return audited(database.pool, actor, async (tx) => {
    const result = await forgetProcesses(tx, SILENT_SECONDS);
    const entries = result.map(({ name, host, pid }): AuditEntry => {
      return { action: 'processes.forget', subject: { kind: 'process', id: `${name} ${host} ${pid}` } };
    });
    return { result, entries };
  });
}

/**
 * Confirms a loss of the queue and all earlier ones, and returns how many were unconfirmed.
 * @throws {Refusal} if there is no such loss
 */
export async function confirmLoss({ database, actor }: Stores, number: number): Promise<number> {
  const [latest] = await listLosses(database.pool, 1);
  if (!latest || number > latest.id)
    throw new Refusal(`no loss has the number ${number}; see penstock queue losses`);
  return auditedByPrisma(database.prisma, actor, async (tx) => {
    const result = await confirmLosses(tx, number);
    const subject = { kind: 'queue_loss', id: String(number) };
    return { result, entries: result === 0 ? [] : [{ action: 'queue.confirm_loss', subject }] };
  });
}

/** Links of all users to one preference center, or links of one user to all preference centers. */
export type RevokedLinks = { centerId: string } | { externalId: string };

/**
 * Revokes links to preference centers permanently, and returns the time of the revocation.
 * @throws {Refusal} if no user has the external id
 */
export async function revokePreferenceLinks(
  { database, actor }: Stores,
  workspaceId: string,
  links: RevokedLinks,
): Promise<Date> {
  const subject: Revoked =
    'centerId' in links
      ? { kind: 'center', id: links.centerId }
      : { kind: 'user', id: await requireUser({ database }, workspaceId, links.externalId) };
  return audited(database.pool, actor, async (tx) => {
    const of = { kind: subject.kind === 'user' ? 'user' : 'preference_center', id: subject.id };
    const entry: AuditEntry = { action: 'preference_links.revoke', subject: of, workspaceId };
    return { result: await revokeLinks(tx, workspaceId, subject), entries: [entry] };
  });
}

async function requireUser(
  { database: { pool } }: Pick<Context, 'database'>,
  workspaceId: string,
  externalId: string,
): Promise<string> {
  const user = await findLinkUser(pool, workspaceId, externalId);
  if (!user) throw new Refusal(`no user of the workspace has the external id '${externalId}'`, 'external_id');
  return user.id;
}

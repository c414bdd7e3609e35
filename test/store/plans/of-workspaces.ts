import { newId } from '../../../src/platform/ids.ts';
import { type AccountCondition, findAccountPage, findAccounts } from '../../../src/store/accounts.ts';
import { addKeyUsage, forgetKeyUsage } from '../../../src/store/api-keys.ts';
import { audited } from '../../../src/store/audit.ts';
import { forgetAudit, searchAudit } from '../../../src/store/audit-list.ts';
import { findApiKeys, findScimToken, touchApiKeys, touchScimToken } from '../../../src/store/credentials.ts';
import { readStuckFences } from '../../../src/store/fences.ts';
import {
  forgetFleetHistory,
  isMinuteRecorded,
  readFleetCounters,
  readFleetHistory,
  readPostgresHealth,
  readReplication,
  readTableSizes,
  recordMinute,
} from '../../../src/store/health.ts';
import {
  forgetMembers,
  leaveInstallation,
  lockLanes,
  meetInstallation,
  meetShards,
  presentMembers,
  readSpread,
  rememberQueue,
  setLanes,
} from '../../../src/store/installation.ts';
import { listIntegrations, listScheduled, selectIntegrations } from '../../../src/store/integrations.ts';
import { isMigrated } from '../../../src/store/migrations.ts';
import {
  ensurePartitions,
  findMissingPartitions,
  readPartitionSizes,
} from '../../../src/store/partitions.ts';
import { deletePermissionSet, deleteTeam, grantGroups } from '../../../src/store/permission-sets.ts';
import {
  beatProcess,
  forgetProcesses,
  hasWorkers,
  leaveFleet,
  listProcesses,
  listReports,
  listSameKind,
  markEnded,
  readEnds,
} from '../../../src/store/processes.ts';
import { hasLostSince, listLosses, reportLoss } from '../../../src/store/queue-losses.ts';
import { findHomes, leaveShards, recordHome } from '../../../src/store/queue-shards.ts';
import { findTokenBucket, keepTokenBuckets } from '../../../src/store/rate-limits.ts';
import {
  endSessions,
  findSession,
  forgetSessions,
  listSessions,
  touchSession,
} from '../../../src/store/sessions.ts';
import { recordMoveStart, recordMoveState } from '../../../src/store/workspace-moves.ts';
import type { Asking } from './asking.ts';

const member = { id: newId(), name: 'web', host: 'host', pid: 1 };
const worker = { ...member, name: 'worker' as const, version: '1.0.0' };
const figures = {
  ...{ address: 'host:1', lanes: [0], missing: ['redis'], objects: 1, objectsPerSecond: 1 },
  ...{ residentBytes: 1, loopBusy: 0.5, refused: 0, refusedPerSecond: 0, marks: {}, held: [] },
};
const fleet = {
  ...{ accepted: 1, refused: 1, deadLetters: 1, applied: [1, 1], depth: [1, 1], oldestSeconds: [1, 1] },
  ...{ workers: 1, postgresMs: 1, redisMs: 1 },
};
const value = 'who2@x.com';
const conditions: AccountCondition[] = [
  { op: 'eq', column: 'id', value: newId() },
  ...(['userName', 'externalId', 'givenName', 'familyName', 'department'] as const).map(
    (column): AccountCondition => ({ op: 'eq', column, value }),
  ),
  ...(['userName', 'givenName', 'familyName'] as const).map(
    (column): AccountCondition => ({ op: 'sw', column, value }),
  ),
  { op: 'email', comparisons: [{ op: 'eq', member: 'value', value }] },
];

const actor = { kind: 'operator', name: 'ada', via: 'console' } as const;
const entry = { action: 'users.export', subject: { kind: 'user', id: newId() } } as const;
const gift = { appGroups: [], workspaceId: newId(), detail: {} };
const searches = [
  {},
  { action: 'users.delete', from: new Date(Date.now() - 86_400_000), to: new Date() },
  { subject: newId() },
];

/** Keys, console accounts and integrations, of which a workspace or a company has few. */
export const ofWorkspaces: Asking = (
  store,
  { workspaceId, companyId, accountId, teamId, setId, integrationId, keyHash },
) => [
  () => isMigrated(store, 1000),
  () => meetInstallation(store, member, { lanes: 1, shards: 1 }),
  () => meetShards(store, 4),
  () => rememberQueue(store, 1, { now: 'now', mark: 'mark', additions: 1, waitingSince: undefined }),
  () =>
    rememberQueue(store, 1, {
      ...{ shard: 1, now: 'now', mark: 'mark', additions: 1, waitingSince: undefined },
    }),
  () => hasLostSince(store, '2026-01-01'),
  () => reportLoss(store, 1, { found: 'empty', mark: 'mark', additions: 1, highestSeen: 2, by: 'web' }),
  () =>
    reportLoss(store, 1, { shard: 1, found: 'empty', mark: 'mark', additions: 1, highestSeen: 2, by: 'web' }),
  () => listLosses(store, 1),
  () => presentMembers(store),
  () => forgetMembers(store),
  () => leaveInstallation(store, member.id),
  () => beatProcess(store, worker, figures),
  () => listProcesses(store),
  () => listReports(store),
  () => listSameKind(store, { id: newId(), name: 'web', host: 'h' }),
  () => markEnded(store, { id: newId(), reason: null }),
  () => readEnds(store),
  () => forgetProcesses(store),
  () => hasWorkers(store),
  () => readFleetCounters(store, 4),
  () => isMinuteRecorded(store),
  () => recordMinute(store, fleet),
  () => readFleetHistory(store, { minutes: 60, from: new Date(Date.now() - 604_800_000) }),
  () => forgetFleetHistory(store),
  () => readTableSizes(store, 30),
  () => readPartitionSizes(store, 24),
  () => readReplication(store),
  () => readPostgresHealth(store),
  () => readStuckFences(store, 60),
  () => findMissingPartitions(store, 1),
  () => leaveFleet(store, worker.id, figures),
  () => readSpread(store),
  () => findHomes(store, [workspaceId]),
  () => recordHome(store, workspaceId, { shard: 1, moves: 1 }),
  () => leaveShards(store, 1),
  () => lockLanes(store),
  () => setLanes(store, 2),
  () => recordMoveStart(store, workspaceId, { id: newId(), to: 1 }),
  () => recordMoveState(store, { workspaceId, id: newId() }, { hasEnded: true }),
  () => ensurePartitions(store),
  () => findApiKeys(store, [keyHash]),
  () => findTokenBucket(store, { ownerId: workspaceId, bucket: 'default', counter: 'web' }),
  () =>
    keepTokenBuckets(store, [
      { ownerId: workspaceId, bucket: 'default', counter: 'web', tokens: 1, at: new Date() },
    ]),
  () => touchApiKeys(store, new Map([[newId(), new Date()]])),
  () => findScimToken(store, keyHash),
  () => touchScimToken(store, newId(), new Date()),
  ...conditions.map((condition) => () => findAccounts(store, companyId, { condition, limit: 100 })),
  () => findAccounts(store, companyId, { limit: 100, after: 50 }),
  () => findAccountPage(store, companyId, { limit: 100, after: 50 }),
  () =>
    findAccounts(store, companyId, {
      condition: { op: 'co', column: 'userName', value },
      limit: 100,
      skip: 1,
    }),
  ...(['older', 'newer'] as const).map(
    (direction) => () => listIntegrations(store, workspaceId, { direction, from: integrationId, size: 10 }),
  ),
  () => listScheduled(store),
  () => selectIntegrations(store, { limit: 10 }),
  () => selectIntegrations(store, { workspaceId, name: 'integration2', limit: 10 }),
  () => audited(store, actor, async () => ({ result: 0, entries: [entry] })),
  ...searches.map((search) => () => searchAudit(store, { ...search, limit: 50 })),
  () => searchAudit(store, { companyId, limit: 50 }),
  () => searchAudit(store, { companyId, actor: 'admin', exceptKind: 'operator', limit: 50 }),
  () => searchAudit(store, { companyId, actor: 'who1@x.com', action: 'users.delete', limit: 50 }),
  () => searchAudit(store, { companyId, action: 'users.delete', before: newId(), limit: 50 }),
  () => forgetAudit(store, 365),
  () => findSession(store, keyHash),
  () => touchSession(store, newId(), { address: '127.0.0.1', agent: 'Firefox' }),
  () => listSessions(store, { accountId }, { limit: 50 }),
  () => listSessions(store, { companyId }, { before: newId(), limit: 50 }),
  () => listSessions(store, {}, { limit: 50 }),
  () => endSessions(store, [newId()], { companyId }),
  () => forgetSessions(store),
  () => deleteTeam(store, actor, { id: teamId, companyId }),
  () => deletePermissionSet(store, actor, { id: setId, companyId }),
  ...[{ team: teamId }, { permissionSet: setId }].map(
    (gives) => () =>
      grantGroups(store, actor, { ...gift, gives, account: { id: accountId, companyId, version: 1 } }),
  ),
  () => addKeyUsage(store, [{ workspaceId, apiKeyId: newId(), bucket: 'default', requests: 1, refused: 0 }]),
  () => forgetKeyUsage(store),
];

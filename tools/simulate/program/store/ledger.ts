import { NIL_UUID } from '../../../../src/platform/ids.ts';
import type { Connection, Pool } from '../../../../src/store/database.ts';
import type { CutEnvelope, EnvelopeKey } from '../../../../src/store/ledger.ts';
import { simulated, simulatedPool } from './transactions.ts';

export const SHARED = NIL_UUID;

export async function claimEnvelopes(tx: Connection, envelopes: EnvelopeKey[]) {
  const memoryTx = simulated(tx);
  const ids = envelopes.map(({ id }) => id).sort();
  const claimed = await memoryTx.send((state) => memoryTx.pool.database.claim(state, ids));
  return { claimed: new Set(claimed), now: new Date().toISOString(), streamed: new Set<string>() };
}

export function readCutEnvelopes(tx: Connection, keys: EnvelopeKey[]) {
  const memoryTx = simulated(tx);
  return memoryTx.send(() => memoryTx.pool.database.left(keys.map(({ id }) => id)));
}

export function releaseEnvelopes(tx: Connection, keys: EnvelopeKey[]): Promise<void> {
  return simulated(tx).send((state) => {
    for (const { id } of keys) state.released.add(id);
  });
}

export function cutEnvelopes(tx: Connection, cut: CutEnvelope[]): Promise<void> {
  return simulated(tx).send((state) => {
    for (const { id, left } of cut) state.cut.set(id, left);
  });
}

export function dropCutEnvelopes(tx: Connection, keys: EnvelopeKey[]): Promise<void> {
  return simulated(tx).send((state) => {
    for (const { id } of keys) state.cut.set(id, undefined);
  });
}

export function readApplied(pool: Pool, ids: string[]): Promise<Set<string>> {
  const memoryPool = simulatedPool(pool);
  return memoryPool.send(() => new Set(ids.filter((id) => memoryPool.database.isApplied(id))));
}

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { unseal } from '../../src/queue/checksum.ts';
import { decodeEnvelope, READS, versionOf, type WireEnvelope, WRITES } from '../../src/queue/wire.ts';
import { canonicalStore } from '../model/canonical.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { createStore, openPool, readDeadLetters } from '../workers/batch.ts';

/**
 * Jobs as stored in Redis by web processes of released versions, byte for byte. Each file holds the jobs of the same
 * 15 requests, with LANES=1. To add a release: run its web with the groups below, send the requests that the objects
 * show, and read `HGET {penstock}:lane-0:<id> data` of each id in the list `wait`, from its end.
 */
interface Released {
  release: string;
  commit: string;
  workspace: string;
  groups: { email: string; sms: string };
  jobs: { id: string; data: string }[];
}

const folder = path.join(import.meta.dirname, 'released');
const expectedFile = path.join(folder, 'expected-rows.json');
const files = readdirSync(folder).filter((name) => name !== path.basename(expectedFile));
const read = (file: string): Released => JSON.parse(readFileSync(path.join(folder, file), 'utf8'));

test.each(files)('G1: the jobs of %s produce the rows that their release intended', async (file) => {
  const { workspace, groups, jobs } = read(file);
  const { url, pool } = await createStore();
  onTestFinished(() => pool.end());
  const store = openPool(url);
  onTestFinished(() => store.end());
  await store.query('insert into workspaces (id, name) values ($1, $2)', [workspace, 'released']);
  for (const [channel, id] of Object.entries(groups))
    await store.query(
      'insert into subscription_groups (id, workspace_id, name, channel) values ($1, $2, $3, $3)',
      [id, workspace, channel],
    );
  for (const { id, data } of jobs) {
    const wire = unseal(data) as WireEnvelope;
    expect(versionOf(wire)).toBeLessThanOrEqual(READS);
    await applyBatch(store, [{ id, lane: 0, envelope: decodeEnvelope(wire) }]);
  }
  expect(await readDeadLetters(store)).toEqual([]);
  const rows = await canonicalStore(store, workspace, []);
  expect(JSON.parse(JSON.stringify(rows))).toEqual(JSON.parse(readFileSync(expectedFile, 'utf8')));
});

test('the corpus has jobs of the version that this release writes', () => {
  const versions = files.flatMap((file) => read(file).jobs.map(({ data }) => versionOf(JSON.parse(data))));
  expect(new Set(versions)).toContain(WRITES);
});

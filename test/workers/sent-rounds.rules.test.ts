import { PassThrough } from 'node:stream';
import { NIL } from 'uuid';
import { expect, test } from 'vitest';
import { JsonText } from '../../src/profile/json.ts';
import type { Connection } from '../../src/store/database.ts';
import { ByWorkspace } from '../../workers/batch/by-workspace.ts';
import { emptyChanges, States } from '../../workers/batch/changes.ts';
import { Profiles } from '../../workers/batch/profiles.ts';
import { writeChanges } from '../../workers/batch/write.ts';

const NOW = '2026-01-01T00:00:00.000000Z';
const row = {
  ...{ workspaceId: NIL, id: NIL, profileId: NIL, time: NOW, appId: undefined },
  ...{ properties: new JsonText('{}'), ordinal: 0, lane: 0 },
};
const purchase = { ...row, productId: 'shoe', currency: 'EUR', price: 1, quantity: 1 };

/** Returns changes with one event and the given purchase. */
function changesWith(one: typeof purchase) {
  const nothing = {
    groups: new Map(),
    ownedTokens: new ByWorkspace<true>(),
    crowdedEmails: new ByWorkspace<true>(),
  };
  const changes = emptyChanges({ ...nothing, profiles: new Profiles(0), states: new States() });
  changes.events.push({ ...row, name: 'seen' });
  changes.purchases.push(one);
  return changes;
}

function connection(answer: () => Promise<unknown>) {
  const sent: string[] = [];
  const query = ({ name }: { name: string }) => {
    sent.push(name);
    return answer();
  };
  return { tx: { connection: { stream: new PassThrough() }, query } as unknown as Connection, sent };
}

test('the ids of a round are known before Postgres has replied', () => {
  const { tx, sent } = connection(() => new Promise(() => {}));
  const { events, purchases } = writeChanges(tx, changesWith(purchase), NOW);
  expect(sent).toEqual(['record-events', 'record-purchases']);
  expect([events?.ids, purchases?.ids].map((ids) => ids?.length)).toEqual([10, 10]);
});

test('G4: a row that cannot be sent fails its round, and earlier replies are still handled', async () => {
  const answer = () => new Promise((_, reject) => setImmediate(reject, new Error('refused')));
  const { tx, sent } = connection(answer);
  // The reply comes later; if it was not part of `stored`, its rejection would be unhandled.
  const { events, purchases, stored } = writeChanges(
    tx,
    changesWith({ ...purchase, id: null as never }),
    NOW,
  );
  expect(sent).toEqual(['record-events']);
  expect([events, purchases]).toEqual([expect.anything(), undefined]);
  await expect(stored).rejects.toThrow(TypeError);
  await new Promise((resolve) => setImmediate(resolve));
});

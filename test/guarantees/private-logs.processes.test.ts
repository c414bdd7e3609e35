import { beforeAll, describe, expect, test } from 'vitest';
import { waitUntil } from '../setup/fixtures.ts';
import { makeTriggers } from '../workers/batch.ts';
import { eitherBackend, type Fleet, startFleet } from './fleet.ts';
import { createClient } from './keep-alive-client.ts';

const person = { external_id: 'hopper-1906', email: 'grace@example.com', phone: '+15550100' };

describe.each(eitherBackend)('an object that Postgres rejects by quoting it; queue on %s', (backend) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 1, env: { LOG_LEVEL: 'trace' } });
    await refuseByQuoting('profiles', "concat_ws(' ', new.external_id, new.email, new.phone)");
    const client = createClient(fleet.workspace.key);
    const { status } = await client.post(fleet.edges[0]!.port, '/users/track', { attributes: [person] });
    expect(status).toBe(201);
    client.close();
    await waitUntil(async () => (await fleet.pool.query('select from dead_letters')).rowCount, {
      what: 'the dead letter',
    });
    return fleet.stop;
  });

  async function refuseByQuoting(table: string, values: string): Promise<void> {
    await makeTriggers(fleet.pool, [
      `create function refuse() returns trigger language plpgsql as $$
      begin
        perform (${values})::integer;
        return new;
      end $$`,
      `create trigger refuse before insert on ${table} for each row execute function refuse()`,
    ]);
  }

  test('is logged by its worker with the kind of error, without its values and the key', async () => {
    const worker = fleet.workers[0]!;
    const line = await waitUntil(() => worker.log.find(({ err }) => err), { what: 'the line' });
    expect(line.err).toMatchObject({
      code: '22P02',
      message: 'invalid input syntax for type integer: [redacted]',
    });
    await waitUntil(() => worker.log.find(({ outcome }) => outcome === 'applied'), { what: 'the last line' });
    for (const { log } of [worker, ...fleet.edges]) {
      const lines = JSON.stringify(log);
      for (const secret of [...Object.values(person), fleet.workspace.key]) {
        expect(lines.includes(secret), secret).toBe(false);
      }
    }
  });
});

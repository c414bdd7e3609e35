import { createClient } from '../../../test/guarantees/keep-alive-client.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import { createWorkspace } from '../../../test/setup/workspace.ts';
import { wrongClock } from '../clock.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

/** Times that clients send, and the times that are stored. */
const times: [sent: string, stored: string][] = [
  ['1970-01-01T00:00:00Z', '1970-01-01T00:00:00.000Z'],
  // A time in the future becomes the time of acceptance.
  ['9999-12-31T23:59:59Z', ''],
  // A leap second becomes the last millisecond of its day.
  ['2016-12-31T23:59:60Z', '2016-12-31T23:59:59.999Z'],
  // Format yyyy-MM-dd'T'HH:mm:ss:SSSZ.
  ['2026-01-02T03:04:05:006Z', '2026-01-02T03:04:05.006Z'],
];

export const wrongClocks: Scenario = {
  number: 21,
  fault: "clocks ± 1 h, and clients' times of 1970, 9999 and a leap second",
  backends: ['redis', 'postgres'],
  spoils: true,
  async run(scene) {
    const traffic = await beginTraffic(scene, { edges: 1, workers: 1 });
    const { fleet, load, circles } = traffic;
    for (const hours of [1, -1]) {
      scene.say(`processes ${hours} h wrong`);
      await fleet.startEdge(undefined, wrongClock(hours));
      await fleet.startWorker(wrongClock(hours));
    }
    await load.more(scene.choose(20_000, 200), 300_000);

    const workspace = await createWorkspace(fleet.pool, 'times');
    const client = createClient(workspace.key);
    const events = times.map(([time], index) => ({ external_id: 'ann', name: `event-${index}`, time }));
    const { status, body } = await client.post(fleet.edges[0]!.port, '/users/track', { events });
    scene.figure('times: status of the request', status ?? 0, '', { atLeast: 201, atMost: 201 });
    scene.figure('times refused', body?.errors?.length ?? 0, '', { atMost: 0 });
    const wanted = times.length;
    const { rows } = await waitUntil(
      async () => {
        const result = await fleet.pool.query(
          `select to_char(time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as time from events
            where workspace_id = $1 order by name`,
          [workspace.id],
        );
        return result.rows.length >= wanted ? result : undefined;
      },
      { what: 'the events', deadline: 60_000 },
    );
    const isNow = (time: string) => Math.abs(Date.parse(time) - Date.now()) < 300_000;
    const right = times.filter(([, stored]) =>
      rows.some(({ time }) => (stored ? time === stored : isNow(time))),
    ).length;
    if (right < wanted) scene.notes.push(`stored: ${rows.map(({ time }) => time).join(', ')}`);
    scene.figure('times stored as sent', right, `of ${wanted}`, { atLeast: wanted });

    if (fleet.redis) await checkLimit();
    client.close();
    await scene.waitUntilApplied(fleet, { load, circles });

    /** Checks that a web process whose clock is an hour ahead does not refill the bucket. */
    async function checkLimit(): Promise<void> {
      const limited = await createWorkspace(fleet.pool, 'limited');
      await fleet.pool.query(
        "insert into rate_limits (workspace_id, bucket, requests, window_seconds) values ($1, 'users.track', 10, 3600)",
        [limited.id],
      );
      const asking = createClient(limited.key);
      let admitted = 0;
      for (let request = 0; request < 40; request++) {
        const { port } = fleet.edges[request % fleet.edges.length]!;
        const attributes = [{ external_id: 'ann' }];
        if ((await asking.post(port, '/users/track', { attributes })).status === 201) admitted++;
      }
      asking.close();
      scene.figure('requests admitted of a limit of 10 by edges whose clocks differ', admitted, '', {
        atLeast: 10,
        atMost: 11,
      });
    }
  },
};

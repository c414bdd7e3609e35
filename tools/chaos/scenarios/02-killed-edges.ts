import { waitUntil } from '../../../test/setup/wait-until.ts';
import { quantile, untilAccepted } from '../answers.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

export const killedEdges: Scenario = {
  number: 2,
  fault: '`kill -9` of the edge in mid-request',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { fleet, load, circles, knockKey } = await beginTraffic(scene, { edges: 2 });
    const times: number[] = [];
    for (let kill = 0; kill < scene.choose(20, 3); kill++) {
      await load.more(scene.choose(500, 50));
      const victim = fleet.edges[0]!;
      scene.say(`kill ${kill + 1}: ${victim.name}`);
      await waitUntil(() => load.inFlight(victim.name) > 0, { what: 'a request in flight', fleeting: true });
      await fleet.end(victim);
      const from = Date.now();
      const successor = await fleet.startEdge(victim.port);
      await untilAccepted({ ...fleet, edges: [successor] }, knockKey, 20_000);
      times.push(Date.now() - from);
      scene.recovered(times.at(-1)!);
    }
    await scene.waitUntilApplied(fleet, { load, circles });
    const odd = [...load.journal.statuses()].filter(
      // Under full load, a web process that has just started may answer with 503.
      ([status]) => status !== 201 && status !== 0 && (scene.short || status < 500),
    );
    scene.figure('kills', times.length, '', {});
    scene.figure('median from restart to the first 2xx', quantile(times, 0.5) / 1000, 's', {
      atMost: scene.choose(2, 10),
    });
    scene.figure(
      scene.choose('answers but 2xx, 5xx and resets', 'answers but 2xx and resets'),
      odd.length,
      '',
      { atMost: 0 },
    );
  },
};

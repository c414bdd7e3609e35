import { createWorkspace } from '../../../test/setup/workspace.ts';
import { checkKeyed, toldApart } from '../check/keyed.ts';
import { createKeyedLoad } from '../load/keyed.ts';
import { raiseLimitsOf } from '../load/limits.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

const CONCURRENT = 50;
export const oneKey: Scenario = {
  number: 11,
  fault: 'one `Idempotency-Key` 50 times at once, again later, again with another body',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const { fleet, load, circles } = await beginTraffic(scene, { edges: 2 });
    const { id, key } = await createWorkspace(fleet.pool, 'keyed');
    await raiseLimitsOf(fleet.pool, id);
    const keyed = createKeyedLoad(fleet, key);
    const keys = scene.choose(200, 5);
    /** Number of keys for each kill of a web process during a request. */
    const perKill = scene.choose(10, 5);
    let kills = 0;
    for (let number = 1; number <= keys; number++) {
      scene.say(`key ${number} of ${keys}`);
      const one = keyed.make();
      const sent = keyed.repeat(one, CONCURRENT);
      if (number % perKill === 0) {
        const victim = fleet.edges[0]!;
        await fleet.end(victim);
        kills++;
        await fleet.startEdge(victim.port);
      }
      await sent;
      await keyed.misuse(one);
    }
    scene.say('all of them again');
    for (const one of keyed.all) await keyed.repeat(one, fleet.edges.length);
    for (const one of keyed.all) await keyed.misuse(one);
    const compare = () => checkKeyed(fleet.pool, id, keyed.all);
    await scene.waitUntilApplied(fleet, { load, circles, compare });
    const differing = toldApart(keyed.all);
    const answers = keyed.all.flatMap((one) => one.answers);
    const refusals = keyed.all.flatMap((one) => one.refusals);
    scene.figure('edges killed meanwhile', kills, '');
    scene.figure('keys whose answers differ', differing.length, '', { atMost: 0 });
    scene.notes.push(...differing.slice(0, 3));
    scene.figure('answers but 201', answers.filter(({ status }) => status !== 201).length, '', { atMost: 0 });
    scene.figure('answers', answers.length, '', { atLeast: keys * CONCURRENT });
    const taken = refusals.filter(({ status }) => status !== 422).length;
    scene.figure('other bodies that were not refused with 422', taken, `of ${refusals.length}`, {
      atMost: 0,
    });
  },
};

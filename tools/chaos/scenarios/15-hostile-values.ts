import { createWorkspace } from '../../../test/setup/workspace.ts';
import { eventLoopLag, probe } from '../probe.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic } from '../traffic.ts';

const digits = (count: number) => '9'.repeat(count);
const attribute = (name: string, value: string) =>
  `{"external_id":"hostile",${JSON.stringify(name)}:${value}}`;
const attributes = (...objects: string[]) => `{"attributes":[${objects.join(',')}]}`;

/** Bodies by fault. Each is answered with 201, 400 or 413, whether or not its objects are accepted. */
const characters = [
  ...['"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udfff\\ud800"', '["\\u0000"]', '{"\\u0000":1}'].map(
    (value) => attributes(attribute('text', value)),
  ),
  attributes('{"external_id":"hostile","a\\u0000b":1}', attribute('fine', 'true')),
  attributes('{"external_id":"\\u0000"}', '{"external_id":"\\ud800"}'),
];

const numbers = [
  '9007199254740993',
  '-9007199254740993',
  '1e309',
  '-1e309',
  '-0',
  '1e-400',
  digits(100_000),
].map((value) => attributes(attribute('number', value), attribute('fine', 'true')));

const names = ['__proto__', 'constructor', 'toString', 'prototype', 'hasOwnProperty'].flatMap((name) => [
  attributes(attribute(name, '"plain"')),
  attributes(attribute('nested', `{${JSON.stringify(name)}:{"polluted":true}}`)),
  `{"events":[{"external_id":${JSON.stringify(name)},"name":${JSON.stringify(name)},"time":"2026-01-01T00:00:00Z","properties":{${JSON.stringify(name)}:1}}]}`,
  attributes(
    `{"user_alias":{"alias_name":${JSON.stringify(name)},"alias_label":${JSON.stringify(name)}},"_update_existing_only":false}`,
  ),
]);

const shapes = [
  attributes(attribute('deep', `${'['.repeat(10_000)}${']'.repeat(10_000)}`)),
  attributes(attribute('deep', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`)),
  attributes(
    `{"external_id":"hostile",${Array.from({ length: 100_000 }, (_, key) => `"k${key}":1`).join(',')}}`,
  ),
  attributes(attribute('long', JSON.stringify('x'.repeat(1_048_576)))),
  `{"attributes":[{"external_id":"hostile","a":1,"a":2}],"attributes":[{"external_id":"hostile","b":1}]}`,
];

async function send(scene: Scene, bodies: string[], slowest: number): Promise<void> {
  const { fleet, load, circles } = await beginTraffic(scene);
  const { id, key } = await createWorkspace(fleet.pool, 'hostile');
  // Reading the lag resets it.
  await eventLoopLag(fleet);
  const answers = [];
  for (const body of bodies) {
    for (const { port } of fleet.edges) answers.push(await probe(port, key, body));
  }
  const lag = await eventLoopLag(fleet);
  const odd = answers.filter(({ status }) => ![201, 400, 413].includes(status));
  scene.figure('bodies sent', answers.length, '', {});
  scene.figure('answers but 201, 400 and 413', odd.length, '', { atMost: 0 });
  scene.notes.push(...odd.slice(0, 3).map(({ status, text }) => `${status} ${text.slice(0, 200)}`));
  scene.figure('slowest answer', Math.max(...answers.map(({ milliseconds }) => milliseconds)), 'ms', {
    atMost: slowest,
  });
  scene.figure('event-loop lag', lag * 1000, 'ms', { atMost: scene.choose(100, 1000) });
  await scene.waitUntilApplied(fleet, { load, circles });
  const { rows } = await fleet.pool.query(
    'select count(*)::integer as count from dead_letters where workspace_id = $1',
    [id],
  );
  scene.figure('dead letters', rows[0].count, '', { atMost: 0 });
}

const backends = ['redis'] as const;

export const hostileCharacters: Scenario = {
  number: 15,
  fault: '`\\u0000` and lone surrogates, in keys and values',
  backends,
  run: (scene) => send(scene, characters, scene.choose(500, 5000)),
};

export const hostileNumbers: Scenario = {
  number: 16,
  fault: 'integers past 2^53, 1e309, -0, numbers of 10^5 digits',
  backends,
  run: (scene) => send(scene, numbers, scene.choose(500, 5000)),
};

export const hostileShapes: Scenario = {
  number: 17,
  fault: 'nesting 10k deep, 100k keys, strings of 1 MB, duplicate keys',
  backends,
  // The limit of 50 ms is for an otherwise idle machine.
  run: (scene) => send(scene, shapes, scene.choose(50, 5000)),
};

export const hostileNames: Scenario = {
  number: 18,
  fault: '`__proto__`, `constructor`, `toString` as names',
  backends,
  run: (scene) => send(scene, names, scene.choose(500, 5000)),
};

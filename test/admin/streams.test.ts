import { randomBytes } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { createDatabase } from '../setup/fixtures.ts';
import { startReceiver } from '../streams/receiver.ts';
import { expectRefusal, makeWorkspaces, type PenstockOn, penstockOn } from './penstock.ts';

const INTEGRATION_KEY = randomBytes(32).toString('base64');
let url: string;
let on: PenstockOn;
beforeAll(async () => {
  ({ url } = await createDatabase());
  on = penstockOn(url, { INTEGRATION_KEY });
  await makeWorkspaces(url, 'shop');
});

const create = (name: string, to: string) => `streams create --workspace shop --name ${name} --url ${to}`;

test('penstock streams makes, shows, tests, pauses, replays and removes a stream; its secret is shown once', async () => {
  const receiver = await startReceiver();
  const made = await on.json(create('crm', receiver.url));
  expect(made).toMatchObject({ name: 'crm', kind: 'webhook', state: 'active', lag_seconds: 0, lost_rows: 0 });
  expect(made.secret).toMatch(/^whsec_/);
  const shown = await on.json('streams show crm --workspace shop');
  expect(shown).not.toHaveProperty('secret');
  expect((await on.json('streams list --workspace shop')).streams).toEqual([shown]);
  expect(await on.json('streams test crm --workspace shop')).toMatchObject({ reached: true });
  expect(receiver.taken[0]).toMatchObject({ messages: [] });
  receiver.answer = (response) => void response.writeHead(500).end();
  expectRefusal(await on.run('streams test crm --workspace shop'), 'the receiver answered 500');
  expect(await on.json('streams pause crm --workspace shop')).toMatchObject({ state: 'paused' });
  expect(await on.json('streams resume crm --workspace shop')).toMatchObject({ state: 'active' });
  const at = '2026-01-31T12:00:00.000Z';
  expect(await on.json(`streams replay-from crm --workspace shop --at ${at}`)).toMatchObject({ from: at });
  expectRefusal(await on.run(create('crm', receiver.url)), "'crm' already");
  expect(await on.json('streams remove crm --workspace shop')).toMatchObject({ removed: true });
  expectRefusal(await on.run('streams show crm --workspace shop'), "no stream 'crm'");
  const { stdout } = await on.run('audit --json --limit 10');
  for (const action of ['create', 'pause', 'resume', 'replay', 'remove'])
    expect(stdout).toContain(`streams.${action}`);
  expect(stdout).not.toContain('whsec_');
});

test('an address that may not be reached, a secret that is none, and no key are refused with their rule', async () => {
  const closed = penstockOn(url, { INTEGRATION_KEY, ALLOWED_NETWORKS: '' });
  expectRefusal(await closed.run(create('inside', 'http://169.254.169.254/latest')), 'REFUSED_NETWORKS');
  expectRefusal(await closed.run(create('inside', 'http://[::ffff:10.0.0.1]/')), 'REFUSED_NETWORKS');
  const named = `${create('named', 'https://example.com')} --secret-env SECRET`;
  expectRefusal(await penstockOn(url, { INTEGRATION_KEY, SECRET: 'x' }).run(named), 'whsec_');
  expectRefusal(await penstockOn(url).run(create('keyless', 'https://example.com')), 'INTEGRATION_KEY');
});

test('a stream to a topic of Kafka keeps its password to itself; what contradicts itself is refused', async () => {
  const on = penstockOn(url, { INTEGRATION_KEY, PASSWORD: 'hush-hush' });
  const kafka = 'streams create --workspace shop --kafka 127.0.0.1:9092,[::1]:9093';
  const made = await on.json(
    `${kafka} --name topic --topic user-data --tls --sasl PLAIN --user us --secret-env PASSWORD`,
  );
  expect(made).toMatchObject({
    kind: 'kafka',
    url: 'kafka://127.0.0.1:9092,[::1]:9093/user-data',
    state: 'active',
  });
  expect(JSON.stringify([made, (await on.run('audit --json --limit 10')).stdout])).not.toContain('hush-hush');
  const refused: [options: string, rule: string][] = [
    [`${kafka} --name a`, '--topic'],
    [`${kafka} --name a --topic b --url https://example.com`, 'one of --url and --kafka'],
    [`${kafka} --name a --topic b --user us`, '--sasl and --user go together'],
    [`${kafka} --name a --topic b --secret-env PASSWORD`, 'goes with --sasl'],
    [`${create('a', 'https://example.com')} --topic b`, '--topic goes with --kafka'],
    ['streams create --workspace shop --name a --kafka broker --topic b', 'host:port'],
    [`${kafka} --name a --topic b/c`, 'letters, digits'],
  ];
  for (const [options, rule] of refused) expect((await on.run(options)).stderr).toContain(rule);
  const closed = penstockOn(url, { INTEGRATION_KEY, REFUSED_NETWORKS: 'private', ALLOWED_NETWORKS: '' });
  expectRefusal(await closed.run(`${kafka} --name a --topic b`), 'REFUSED_NETWORKS');
});

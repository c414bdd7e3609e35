import { randomBytes } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { startS3 } from '../integrations/s3.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
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

test('penstock streams manages a webhook stream and shows its secret once', async () => {
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
  expectRefusal(await on.run('streams test crm --workspace shop'), 'the destination answered 500');
  const tests = (await on.json('audit --action streams.test')).entries;
  expect(tests.map(({ detail }: { detail: object }) => detail)).toEqual([
    { name: 'crm', reached: false, error: expect.stringContaining('answered 500') },
    { name: 'crm', reached: true },
  ]);
  expect(await on.json('streams pause crm --workspace shop')).toMatchObject({ state: 'paused' });
  expect(await on.json('streams resume crm --workspace shop')).toMatchObject({ state: 'active' });
  const at = '2026-01-31T12:00:00.000Z';
  expect(await on.json(`streams replay-from crm --workspace shop --at ${at}`)).toMatchObject({ from: at });
  expectRefusal(await on.run(create('crm', receiver.url)), "with the name 'crm'");
  expect(await on.json('streams remove crm --workspace shop')).toMatchObject({ removed: true });
  expectRefusal(await on.run('streams show crm --workspace shop'), "no stream 'crm'");
  const { stdout } = await on.run('audit --json --limit 10');
  for (const action of ['create', 'pause', 'resume', 'replay', 'remove'])
    expect(stdout).toContain(`streams.${action}`);
  expect(stdout).not.toContain('whsec_');
});

test('rejects a refused address, an invalid secret and a missing INTEGRATION_KEY', async () => {
  const closed = penstockOn(url, { INTEGRATION_KEY, ALLOWED_NETWORKS: '' });
  expectRefusal(await closed.run(create('inside', 'http://169.254.169.254/latest')), 'REFUSED_NETWORKS');
  expectRefusal(await closed.run(create('inside', 'http://[::ffff:10.0.0.1]/')), 'REFUSED_NETWORKS');
  const named = `${create('named', 'https://example.com')} --secret-env SECRET`;
  expectRefusal(await penstockOn(url, { INTEGRATION_KEY, SECRET: 'x' }).run(named), 'whsec_');
  expectRefusal(await penstockOn(url).run(create('keyless', 'https://example.com')), 'INTEGRATION_KEY');
});

test('never shows the password of a Kafka stream, and rejects conflicting options', async () => {
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
    [`${kafka} --name a --topic b --url https://example.com`, 'one of --url, --kafka and --to'],
    [`${kafka} --name a --topic b --user us`, 'set --sasl and --user together'],
    [`${kafka} --name a --topic b --secret-env PASSWORD`, 'set --sasl and --user as well'],
    [`${create('a', 'https://example.com')} --topic b`, '--topic needs --kafka'],
    ['streams create --workspace shop --name a --kafka broker --topic b', 'host:port'],
    [`${kafka} --name a --topic b/c`, 'letters, digits'],
  ];
  for (const [options, rule] of refused) expect((await on.run(options)).stderr).toContain(rule);
  const closed = penstockOn(url, { INTEGRATION_KEY, REFUSED_NETWORKS: 'private', ALLOWED_NETWORKS: '' });
  expectRefusal(await closed.run(`${kafka} --name a --topic b`), 'REFUSED_NETWORKS');
});

test('creates and tests file streams; rejects conflicting options and other folders', async () => {
  const [folder, other] = [temporaryFolder(), temporaryFolder()];
  const { fill, endpoint, credentials } = await startS3();
  const bucket = await fill(other, '');
  const { access_key_id, secret_access_key: SECRET } = credentials;
  const on = penstockOn(url, { INTEGRATION_KEY, STREAM_FOLDERS: folder, SECRET });
  const files = 'streams create --workspace shop --name';
  const lake = `${files} lake --to file://${folder} --format parquet --from 2026-11-23T08:00:00Z`;
  expect(await on.json(lake)).toMatchObject({ kind: 'files', url: `file://${folder}`, state: 'active' });
  expect(await on.json('streams test lake --workspace shop')).toMatchObject({ reached: true });
  const account = `--region eu --endpoint ${endpoint} --access-key-id ${access_key_id} --secret-env SECRET`;
  const made = await on.json(`${files} s3 --to s3://${bucket}/a ${account} --from beginning`);
  expect(made).toMatchObject({ kind: 'files', url: `s3://${bucket}/a` });
  expect(await on.json('streams test s3 --workspace shop')).toMatchObject({ reached: true });
  const { stdout } = await on.run('audit --json --limit 10');
  expect(stdout).toContain('2026-11-23T08:00:00.000Z');
  const refused: [options: string, rule: string][] = [
    [`${files} a --to file://${other}`, 'STREAM_FOLDERS'],
    [`${files} a --to ${folder}`, 's3://bucket/prefix or file:///folder'],
    [`${files} a --to s3://${bucket}`, 'S3_REGION is not set'],
    [`${files} a --to s3://${bucket} --region eu`, '--access-key-id'],
    [`${files} a --to file://${folder} --region eu`, 'need a target that starts with s3://'],
    [`${files} a --to file://${folder} --secret-env SECRET`, 'needs --access-key-id'],
    [`${files} a --url https://example.com --format ndjson`, '--format needs --to'],
    [`${files} a --to file://${folder} --topic b`, '--topic needs --kafka'],
    [`${files} a --to file://${folder} --from yesterday`, '2026-11-23T08:00:00Z'],
  ];
  for (const [options, rule] of refused) expect((await on.run(options)).stderr).toContain(rule);
  const closed = penstockOn(url, {
    INTEGRATION_KEY,
    SECRET,
    REFUSED_NETWORKS: 'private',
    ALLOWED_NETWORKS: '',
  });
  expectRefusal(await closed.run(`${files} a --to s3://${bucket} ${account}`), 'REFUSED_NETWORKS');
});

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { allOperations } from '../src/operations/index.ts';
import { ConfigError, readConfig, settings } from '../src/platform/config.ts';
import { packageRoot } from '../src/platform/files.ts';
import { type ProcessName, processNames } from '../src/platform/settings/define.ts';
import { settingGroups } from '../src/platform/settings.ts';
import { NAMED_ATTRIBUTES } from '../src/profile/attributes.ts';
import { rulesOf } from '../src/schemas/vendor-rules.ts';
import { describeApiKey } from '../src/store/credentials.ts';
import { envExample, productionSettings, settingsPage } from '../tools/generate/settings.ts';
import { sources } from './setup/sources.ts';

const DATABASE_URL = 'postgresql://db.example.com/penstock';

describe('settings', () => {
  test.each(Object.entries(settings))('%s has a default, a unit and whole sentences', (_name, setting) => {
    expect(setting.default).toBeDefined();
    expect(setting.description).toMatch(/^[A-Z`].+\.$/);
    // A text may have no unit; the unit of a number would have to be guessed.
    if (setting.type === 'integer') expect(setting.unit).not.toBe('');
    else expect(setting.unit).toBeTypeOf('string');
  });

  test('every setting is in exactly one group', () => {
    const grouped = Object.values(settingGroups).flatMap((group) => Object.keys(group));
    expect(grouped.toSorted()).toEqual(Object.keys(settings).toSorted());
  });

  test.each(Object.entries(settings))(
    'the example of %s is valid and not the default',
    (name, { example }) => {
      expect(example).not.toBe(String(settings[name as keyof typeof settings].default));
      const others = {
        ...{ DATABASE_URL, REDIS_URL: 'redis://cache', OIDC_CLIENT_ID: 'console' },
        ...{ BOARD_URL: 'https://console.example.com', BOOTSTRAP_SCIM_TOKEN: 'x'.repeat(16) },
        ...{ BOOTSTRAP_SCIM_ORIGIN: 'https://idp.example', MAX_PENDING_BYTES: '67108864' },
      };
      expect(String(readConfig({ ...others, [name]: example })[name as keyof typeof settings])).toBe(example);
    },
  );

  test('without any environment every setting has its default', () => {
    const resolved = { DEPLOYMENT_FORM: 'embedded', QUEUE: 'postgres' };
    const defaults = Object.entries(settings).map(([name, setting]) => [name, setting.default]);
    expect(readConfig({})).toEqual({ ...Object.fromEntries(defaults), ...resolved });
  });

  test.each([
    [{}, { DEPLOYMENT_FORM: 'embedded', QUEUE: 'postgres' }],
    [{ DEPLOYMENT_FORM: 'embedded' }, { DEPLOYMENT_FORM: 'embedded' }],
    [{ DATABASE_URL }, { DEPLOYMENT_FORM: 'production', QUEUE: 'postgres' }],
    [{ DEPLOYMENT_FORM: 'production', DATABASE_URL }, { DEPLOYMENT_FORM: 'production' }],
    [{ REDIS_URL: 'redis://cache' }, { DEPLOYMENT_FORM: 'embedded', QUEUE: 'redis' }],
    [
      { DATABASE_URL, REDIS_URL: 'redis://cache', QUEUE: 'postgres' },
      { DEPLOYMENT_FORM: 'production', QUEUE: 'postgres' },
    ],
  ])('readConfig resolves the form and the queue of %o to %o', (given, resolved) => {
    expect(readConfig(given)).toMatchObject(resolved);
  });

  test.each([
    ['embedded', DATABASE_URL, 'DEPLOYMENT_FORM is embedded, so DATABASE_URL must be empty'],
    ['production', '', 'DEPLOYMENT_FORM is production, so DATABASE_URL must be set'],
    ['hosted', '', 'DEPLOYMENT_FORM must be equal to one of the allowed values: , embedded, production'],
  ])(
    'readConfig rejects DEPLOYMENT_FORM=%s with DATABASE_URL=%s and names the reason',
    (form, url, reason) => {
      expect(() => readConfig({ DEPLOYMENT_FORM: form, DATABASE_URL: url })).toThrow(reason);
    },
  );

  test('an empty value counts as unset', () => {
    expect(readConfig({ PORT: '', REDIS_URL: '  ' })).toEqual(readConfig({}));
  });

  test('every wrong setting is named, with its rule and its value', () => {
    const read = () => readConfig({ PORT: '70000', LANES: 'many', LOG_LEVEL: 'loud' });
    expect(read).toThrow(ConfigError);
    expect(read).toThrow('PORT must be <= 65535 (it is 70000)');
    expect(read).toThrow('LANES must be integer (it is "many")');
    expect(read).toThrow('LOG_LEVEL must be equal to one of the allowed values: fatal, error, warn');
  });

  test.each([
    ['REDIS_URL', 'localhost:6379', 'redis:// or rediss://'],
    ['REDIS_URL', 'http://localhost', 'redis:// or rediss://'],
    ['REDIS_SENTINELS', 'one:26379 two:26379', 'host:port, with several separated by commas'],
    ['REDIS_SENTINELS', 'redis://user:secret@one', 'host:port, with several separated by commas'],
    ['DATABASE_URL', 'localhost:5432/penstock', 'postgres:// or postgresql://'],
    ['DATABASE_URL', 'mysql://root:hunter2hunter2@localhost', 'postgres:// or postgresql://'],
    ['BOOTSTRAP_API_KEY', 'hunter2', '16 to 500 visible ASCII characters'],
    ['BOOTSTRAP_API_KEY', 'x'.repeat(501), '16 to 500 visible ASCII characters'],
    ['BOOTSTRAP_API_KEY', 'a key with spaces in it', '16 to 500 visible ASCII characters'],
    ['SERVICE_ID_FIELD', 'Service Id', 'a name in lower case'],
    ['BOARD_URL', 'console.example.com', 'name a host'],
    ['BOARD_URL', 'https://console.example.com/console', 'no path'],
    ['BOARD_URL', 'https://somebody@console.example.com', 'no path'],
    ['OIDC_ISSUER', 'http://id.example.com', 'with https://, or with http:// on this machine'],
    ['OIDC_ISSUER', 'http://localhost.example.com', 'with https://, or with http:// on this machine'],
    ['OIDC_ISSUER', 'http://localhost:80@example.com', 'with https://, or with http:// on this machine'],
    ['OIDC_ISSUER', 'https://id.example.com?tenant=1', 'neither a query nor a user'],
    ['OIDC_CLIENT_SECRET', 'hunter2 hunter2', 'at most 1,000 visible ASCII characters'],
    ['OIDC_ACCOUNT_CLAIM', 'the email', 'the name of a claim'],
    ['INTEGRATION_KEY', 'hunter2hunter2', '32 bytes in base64 or hex'],
    ['INTEGRATION_KEY', `${'A'.repeat(43)}=,hunter2`, '32 bytes in base64 or hex'],
  ])('rejects %s=%s by name and rule without showing a value that may be secret', (name, value, rule) => {
    const read = () => readConfig({ [name]: value });
    expect(read).toThrow(`wrong setting: ${name} must `);
    expect(read).toThrow(rule);
    expect(read).not.toThrow(value);
  });

  test.each([
    ['REDIS_URL', 'redis://127.0.0.1:6379/2'],
    ['REDIS_URL', 'rediss://user:secret@cache.example.com'],
    ['DATABASE_URL', 'postgres://penstock@/penstock?host=/run/postgresql'],
    ['DATABASE_URL', 'postgresql://penstock:secret@localhost:5432/penstock'],
    ['BOOTSTRAP_API_KEY', 'x'.repeat(16)],
    ['BOOTSTRAP_API_KEY', 'x'.repeat(500)],
    ['SERVICE_ID_FIELD', 'braze_id'],
    ['INTEGRATION_KEY', `${'A'.repeat(43)}=`],
    ['INTEGRATION_KEY', `${'aB'.repeat(32)},${'A'.repeat(43)}=`],
  ])('%s=%s is accepted', (name, value) => {
    expect(readConfig({ [name]: value })).toMatchObject({ [name]: value });
  });

  test('OIDC_ISSUER, https or on this machine, needs a client and the address of the console', () => {
    for (const OIDC_ISSUER of ['https://id.example.com/tenant', 'http://127.0.0.1:8080', 'http://[::1]/x']) {
      const whole = { OIDC_ISSUER, OIDC_CLIENT_ID: 'console', BOARD_URL: 'https://console.example.com/' };
      expect(readConfig(whole)).toMatchObject(whole);
      for (const name of ['OIDC_CLIENT_ID', 'BOARD_URL'])
        expect(() => readConfig({ ...whole, [name]: '' })).toThrow(
          'OIDC_ISSUER needs OIDC_CLIENT_ID and BOARD_URL',
        );
    }
  });

  test('at most half of an accepted BOOTSTRAP_API_KEY is stored in clear', () => {
    const shortest = 'x'.repeat(16);
    expect(readConfig({ BOOTSTRAP_API_KEY: shortest }).BOOTSTRAP_API_KEY).toBe(shortest);
    expect(describeApiKey(shortest).identifier).toBe('x'.repeat(8));
  });

  test('SERVICE_ID_FIELD and its plural must differ from all other fields and attributes', () => {
    const names = new Set(['constructor', ...NAMED_ATTRIBUTES]);
    // SCIM has no service id, and has names of its own.
    const others = allOperations('zz_field', { rules: rulesOf.current }).filter(
      ({ auth }) => auth === undefined,
    );
    for (const { body, query, replies, errorSchema } of others)
      collectMembers([body, query, replies, errorSchema], names);
    expect(names.size).toBeGreaterThan(70);
    const given = [...names].filter((name) => /^[a-z][a-z0-9_]*$/.test(name) && !name.startsWith('zz_field'));
    for (const name of given.flatMap((name) => [name, ...(name.endsWith('s') ? [name.slice(0, -1)] : [])])) {
      expect(() => readConfig({ SERVICE_ID_FIELD: name }), name).toThrow(
        `SERVICE_ID_FIELD must not be the name of another field (it is "${name}")`,
      );
    }
  });

  test('SERVICE_ID_FIELD is braze_id with VENDOR_RULES=current, unless it is set', () => {
    expect(readConfig({})).toMatchObject({ VENDOR_RULES: 'spec', SERVICE_ID_FIELD: 'service_id' });
    const VENDOR_RULES = 'current';
    expect(readConfig({ VENDOR_RULES }).SERVICE_ID_FIELD).toBe('braze_id');
    expect(readConfig({ VENDOR_RULES, SERVICE_ID_FIELD: 'user_key' }).SERVICE_ID_FIELD).toBe('user_key');
    expect(() => readConfig({ VENDOR_RULES: 'new' })).toThrow('VENDOR_RULES must be equal to one of');
  });

  test('Sentinels require REDIS_URL', () => {
    const REDIS_SENTINELS = 'one:26379, two:26379,[::1]:26379';
    expect(() => readConfig({ REDIS_SENTINELS })).toThrow('REDIS_SENTINELS needs REDIS_URL');
    expect(readConfig({ REDIS_SENTINELS, REDIS_URL: 'redis://:secret@any' })).toMatchObject({
      REDIS_SENTINELS,
    });
  });

  test('a cluster has one database and no Sentinels, and REDIS_URL holds its password', () => {
    const REDIS_CLUSTER_NODES = 'one:6379, two,[::1]:6380';
    const REDIS_URL = 'rediss://user:secret@any';
    expect(() => readConfig({ REDIS_CLUSTER_NODES })).toThrow('REDIS_CLUSTER_NODES needs REDIS_URL');
    expect(readConfig({ REDIS_CLUSTER_NODES, REDIS_URL })).toMatchObject({ REDIS_CLUSTER_NODES });
    expect(() => readConfig({ REDIS_CLUSTER_NODES, REDIS_URL, REDIS_SENTINELS: 'one' })).toThrow('not both');
    expect(() => readConfig({ REDIS_CLUSTER_NODES, REDIS_URL: `${REDIS_URL}/1` })).toThrow('only the first');
    expect(() => readConfig({ REDIS_CLUSTER_NODES: 'redis://one', REDIS_URL })).toThrow('host:port');
  });

  test('a SCIM token of the environment requires its origin, and the reverse', () => {
    const token = { BOOTSTRAP_SCIM_TOKEN: 'x'.repeat(16) };
    const origin = { BOOTSTRAP_SCIM_ORIGIN: 'https://idp.example' };
    expect(readConfig({ ...token, ...origin })).toMatchObject({ ...token, ...origin });
    for (const half of [token, origin])
      expect(() => readConfig(half)).toThrow(
        'set BOOTSTRAP_SCIM_TOKEN and BOOTSTRAP_SCIM_ORIGIN, or neither',
      );
    expect(() => readConfig({ ...origin, BOOTSTRAP_SCIM_TOKEN: 'short' })).toThrow(
      'BOOTSTRAP_SCIM_TOKEN must be 16 to 500 visible ASCII characters',
    );
    expect(() => readConfig({ ...token, BOOTSTRAP_SCIM_ORIGIN: 'a b' })).toThrow(
      'BOOTSTRAP_SCIM_ORIGIN must be 1 to 255 visible ASCII characters',
    );
  });

  test('MAX_BODY_BYTES is at most the limit of waiting bytes', () => {
    const read = () => readConfig({ MAX_BODY_BYTES: '2000000', MAX_PENDING_BYTES: '1000000' });
    expect(read).toThrow('wrong setting: MAX_PENDING_BYTES must be >= MAX_BODY_BYTES');
  });

  test('the configuration is frozen', () => {
    expect(Object.isFrozen(readConfig({}))).toBe(true);
  });
});

describe('files generated from the settings (npm run generate)', () => {
  const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');

  test('.env.example is current, and sets only the twelve settings of production', () => {
    const text = read('.env.example');
    expect(text).toBe(envExample());
    const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
    const values = Object.fromEntries(lines.map((line) => line.split('=')));
    expect(Object.keys(values)).toEqual(Object.keys(productionSettings));
    expect(lines).toHaveLength(12);
    expect(readConfig({ ...values, DATABASE_URL })).toEqual(readConfig({ DATABASE_URL }));
  });

  test('.env.example lists every other setting with its default', () => {
    const lines = read('.env.example').match(/^#?[A-Z][A-Z0-9_]+=.*$/gm)!;
    const values = Object.fromEntries(lines.map((line) => line.replace('#', '').split('=')));
    const { DEPLOYMENT_FORM, ...others } = values;
    expect(Object.keys(values).toSorted()).toEqual(Object.keys(settings).toSorted());
    expect(readConfig(others)).toEqual(readConfig({}));
  });

  test('docs/settings.md is current and has a heading for every group and setting', () => {
    const text = read('docs/settings.md');
    expect(text).toBe(settingsPage());
    for (const title of Object.keys(settingGroups)) expect(text).toContain(`\n## ${title}\n`);
    for (const name of Object.keys(settings)) expect(text).toContain(`\n### ${name}\n`);
  });
});

describe('the processes that read a setting', () => {
  const entries: Record<ProcessName, string> = {
    ...{ web: 'src/web.ts', worker: 'workers/worker.ts', sync: 'workers/sync.ts', board: 'src/board.ts' },
    ...{ release: 'src/release.ts', cli: 'src/cli.ts', start: 'src/start.ts' },
  };
  const modules = new Map(sources.map((source) => [source.file, source]));
  const loaded = Object.fromEntries(processNames.map((name) => [name, filesLoadedBy(entries[name])]));
  const readers = Object.keys(settings).map((name) => ({ name, files: filesReading(name) }));

  test.each(readers)('$name is read in the code of each process that it names', ({ name, files }) => {
    const { readBy } = settings[name as keyof typeof settings];
    expect(readBy.filter((process) => !files.some((file) => loaded[process]!.has(file)))).toEqual([]);
  });

  test.each(readers)('$name names each process whose own code reads it', ({ name, files }) => {
    const { readBy } = settings[name as keyof typeof settings];
    const own = files.filter((file) => !SHARED.test(file));
    const reading = processNames.filter((process) => own.some((file) => loaded[process]!.has(file)));
    expect(reading.filter((process) => !(readBy as readonly string[]).includes(process))).toEqual([]);
  });

  /** Returns the entry file and every file of this repository that it loads, at once or later. */
  function filesLoadedBy(entry: string): Set<string> {
    // `npm start` prepares the database in a separate process.
    const files = new Set(entry === entries.start ? [entry, 'src/prepare.ts'] : [entry]);
    for (const file of files) {
      const { loads = [], opens = [] } = modules.get(file) ?? {};
      // `penstock start` and `penstock dev` load these other programs into their process.
      const others = [...loads, ...opens].filter((next) => ![entries.start, 'src/dev.ts'].includes(next));
      for (const next of others) if (modules.has(next)) files.add(next);
    }
    return files;
  }

  function filesReading(name: string): string[] {
    const pattern = new RegExp(
      `\\b(?:[cC]onfig|settings)\\.${name}\\b|[{,]\\s*${name}\\b(?=\\s*[,:}])|'${name}'`,
    );
    return sources
      .filter(({ file }) => /^(?:src|workers)\//.test(file) && !DEFINES.test(file))
      .filter(({ text }) => pattern.test(text.replace(COMMENTS, '')))
      .map(({ file }) => file);
  }
});

const COMMENTS = /\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm;

/** Files that define settings, check all of them, or use a setting's name for something else. */
const DEFINES = /^src\/platform\/(?:settings(?:\/\w+)?|config|listen)\.ts$/;

/** Code that several processes load, each of which calls only a part. */
const SHARED =
  /^src\/(?:platform|processes|queue|embedded|store|object-store|export|streams)\/|^src\/admin\/(?:queue|installation)\.ts$/;

/** Collects the names of all members in a JSON Schema, at every depth. */
function collectMembers(schema: unknown, names: Set<string>): void {
  if (typeof schema !== 'object' || schema === null) return;
  for (const [keyword, value] of Object.entries(schema)) {
    if (keyword !== 'properties') collectMembers(value, names);
    else {
      for (const [name, member] of Object.entries(value)) {
        names.add(name);
        collectMembers(member, names);
      }
    }
  }
}

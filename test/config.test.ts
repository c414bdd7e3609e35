import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { envExample, readmeWithSettings } from '../scripts/settings.ts';
import { ConfigError, readConfig, settings } from '../src/config.ts';
import { packageRoot } from '../src/package-root.ts';

describe('settings', () => {
  test.each(Object.entries(settings))('%s has a default, a unit and a sentence', (_name, setting) => {
    expect(setting.default).toBeDefined();
    expect(setting.description).toMatch(/^[A-Z].+\.$/);
    // A text may be of no unit; a number without one would have to be guessed.
    if (setting.type === 'integer') expect(setting.unit).not.toBe('');
    else expect(setting.unit).toBeTypeOf('string');
  });

  test('without any environment every setting has its default', () => {
    const config = readConfig({});
    for (const [name, setting] of Object.entries(settings)) {
      expect(config[name as keyof typeof config]).toBe(setting.default);
    }
  });

  test('an empty value counts as unset', () => {
    expect(readConfig({ PORT: '', REDIS_URL: '  ' })).toEqual(readConfig({}));
  });

  test('every wrong setting is named, with its rule and the value found', () => {
    const read = () => readConfig({ PORT: '70000', LANES: 'many', LOG_LEVEL: 'loud' });
    expect(read).toThrow(ConfigError);
    expect(read).toThrow('PORT must be <= 65535 (it is 70000)');
    expect(read).toThrow('LANES must be integer (it is "many")');
    expect(read).toThrow('LOG_LEVEL must be equal to one of the allowed values: fatal, error, warn');
  });

  test('what is read cannot be changed', () => {
    expect(Object.isFrozen(readConfig({}))).toBe(true);
  });
});

describe('what is generated from the settings (npm run generate)', () => {
  const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');

  test('.env.example is current, and says nothing but the defaults', () => {
    const text = read('.env.example');
    expect(text).toBe(envExample());
    const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
    expect(readConfig(Object.fromEntries(lines.map((line) => line.split('='))))).toEqual(readConfig({}));
  });

  test('the table of settings in the README is current', () => {
    const text = read('README.md');
    expect(text).toBe(readmeWithSettings(text));
    for (const name of Object.keys(settings)) expect(text).toContain(`| \`${name}\` |`);
  });
});

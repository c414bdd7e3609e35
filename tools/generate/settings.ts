import { grouped } from '../../src/platform/format.ts';
import type { ProcessName } from '../../src/platform/settings/define.ts';
import { type SettingName, settingGroups, settings } from '../../src/platform/settings.ts';

interface Setting {
  type: 'string' | 'integer';
  default: string | number;
  unit: string;
  description: string;
  example: string;
  readBy: readonly ProcessName[];
  toChange: string;
  enum?: readonly string[];
  minimum?: number;
  maximum?: number;
}

/** The settings that an installation in production needs, with the value of .env.example if it is not the default. */
export const productionSettings: Partial<Record<SettingName, string>> = {
  DEPLOYMENT_FORM: 'production',
  DATABASE_URL: '',
  REDIS_URL: '',
  LANES: '1',
  INTEGRATION_KEY: '',
  BOARD_PASSWORD: '',
  METRICS_TOKEN: '',
  PUBLIC_URL: '',
  BOARD_URL: '',
  TRUST_PROXY_HOPS: '0',
  ALLOWED_NETWORKS: '',
  SHUTDOWN_DELAY_MS: '0',
};

const ENV_HEAD = `# Settings of Penstock. An empty value means the default. docker compose reads this file as .env.
# The first twelve settings are what an installation in production needs. All others follow by group, with their
# defaults: remove the # to change one. docs/settings.md has the same list, with the processes that read each setting.
`;

/** Returns the text of .env.example: first the settings of production, then all others, commented out. */
export function envExample(): string {
  const production = Object.entries(productionSettings).map(([name, value]) => {
    const { description, example } = settings[name as SettingName];
    const [first] = /^.+?\.(?= |$)/.exec(description)!;
    return `${comment(`${first} Example: ${example}`)}${name}=${value}\n`;
  });
  const groups = Object.entries(settingGroups).flatMap(([title, group]) => {
    const others = Object.entries(group as Record<string, Setting>).filter(
      ([name]) => !Object.hasOwn(productionSettings, name),
    );
    return [
      `# --- ${title} ---\n`,
      ...others.map(([name, setting]) => {
        const unit = setting.unit && setting.type === 'integer' ? ` Unit: ${setting.unit}.` : '';
        return `${comment(`${setting.description}${unit} Example: ${setting.example}`)}#${name}=${setting.default}\n`;
      }),
    ];
  });
  return [ENV_HEAD, ...production, ...groups].join('\n');
}

const WIDTH = 110;

/** Wraps the text into comment lines. */
function comment(text: string): string {
  const lines = [''];
  for (const word of text.replaceAll('`', '').split(' ')) {
    if (lines.at(-1)!.length + word.length >= WIDTH) lines.push('');
    lines[lines.length - 1] += ` ${word}`;
  }
  return lines.map((line) => `#${line}\n`).join('');
}

const PAGE_HEAD = `# Settings

<!-- Generated from src/platform/settings by npm run generate: change them there. -->

Every setting is an environment variable, and every setting has a default. An empty value means the default.
A process reads its settings once, at its start. Each setting states what a change needs. [Configure](configure.md) shows
where to set the values, which twelve settings production needs, and how to check the result.
`;

/** Returns the text of docs/settings.md: every setting under the heading of its group. */
export function settingsPage(): string {
  const groups = Object.entries(settingGroups).flatMap(([title, group]) => [
    `## ${title}\n`,
    ...Object.entries(group as Record<string, Setting>).map(
      ([name, setting]) => `### ${name}\n\n${linked(setting.description)}\n\n${factsOf(setting)}\n`,
    ),
  ]);
  return [PAGE_HEAD, ...groups].join('\n');
}

const processTitles: Readonly<Record<ProcessName, string>> = {
  ...{ web: 'web', worker: 'worker', sync: 'sync', board: 'board', release: 'release' },
  ...{ cli: 'the command `penstock`', start: '`npm start`' },
};

/** Returns a list with the default, the accepted values, an example, the readers, and what a change needs. */
function factsOf({
  default: value,
  unit,
  minimum,
  maximum,
  enum: values,
  example,
  readBy,
  toChange,
}: Setting): string {
  const amount = minimum === undefined || unit === 'port' ? '' : ` ${unit}`;
  const range = minimum === undefined ? [] : [`Range: ${grouped(minimum)} to ${grouped(maximum!)}`];
  const choice = values ? [`Values: ${values.filter(Boolean).map(code).join(', ')}`] : [];
  const facts = [
    `Default: ${value === '' ? 'empty' : `${code(value)}${amount}`}`,
    ...range,
    ...choice,
    ...(values && values.length < 4 ? [] : [`Example: ${code(example)}`]),
    `Read by: ${readBy.map((name) => processTitles[name]).join(', ')}`,
    `To change it: ${linked(toChange)}`,
  ];
  return facts.map((fact) => `- ${fact}`).join('\n');
}

const code = (text: string | number) => `\`${text}\``;

/** Returns the description with links to the pages that it names, and with names of settings as code. */
function linked(description: string): string {
  return description
    .replace(/\bdocs\/([\w-]+\.md)/g, '[$1]($1)')
    .replace(/\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b/g, (name) =>
      Object.hasOwn(settings, name) ? code(name) : name,
    )
    .replace(/\bs3:\/\/bucket\/prefix\b/g, code('s3://bucket/prefix'));
}

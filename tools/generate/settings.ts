import { settings } from '../../src/platform/config.ts';

/** The text of .env.example: every setting with its sentence, unit and default. */
export function envExample(): string {
  const entries = Object.entries(settings).map(([name, setting]) => {
    const unit = setting.unit ? ` [${setting.unit}]` : '';
    return `# ${setting.description}${unit}\n${name}=${setting.default}\n`;
  });
  const head =
    '# Every setting with its default; an empty value counts as unset. docker compose reads .env.\n';
  return [head, ...entries].join('\n');
}

/** The text of docs/settings.md: every setting with its default, unit and sentence. */
export function settingsPage(): string {
  return `${head}\n${settingsTable()}\n`;
}

const head = `# Settings

<!-- Generated from src/platform/settings.ts by npm run generate: change them there. -->

Every setting is an environment variable with a default, so that a first start needs none. A process reads them once, at its
start: a wrong value ends it with one sentence that names the setting and the rule. An empty value counts as
unset. \`.env.example\` has the same list; \`docker compose\` reads \`.env\`. What the processes are, and which settings have to be
equal on all of them, is in [operations.md](operations.md).
`;

function settingsTable(): string {
  const rows = Object.entries(settings).map(([name, setting]) => {
    const { default: value, unit, description } = setting;
    const amount = setting.type === 'integer' && unit !== 'port' ? ` ${unit}` : '';
    const shown = value === '' ? '(empty)' : `\`${value}\`${amount}`;
    return `| \`${name}\` | ${shown} | ${description.replaceAll('|', '\\|')} |`;
  });
  return ['| Setting | Default | Meaning |', '|---|---|---|', ...rows].join('\n');
}

import { settings } from '../src/config.ts';

const BEGIN = '<!-- settings: generated from src/config.ts by npm run generate -->';
const END = '<!-- /settings -->';

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

/** The README with the table of settings between its two marks, or as it is where it has no marks. */
export function readmeWithSettings(readme: string): string {
  const [before, rest] = readme.split(BEGIN);
  const after = rest?.split(END)[1];
  if (before === undefined || after === undefined) return readme;
  return `${before}${BEGIN}\n${settingsTable()}\n${END}${after}`;
}

function settingsTable(): string {
  const rows = Object.entries(settings).map(([name, setting]) => {
    const { default: value, unit, description } = setting;
    const amount = setting.type === 'integer' && unit !== 'port' ? ` ${unit}` : '';
    const shown = value === '' ? '(empty)' : `\`${value}\`${amount}`;
    return `| \`${name}\` | ${shown} | ${description.replaceAll('|', '\\|')} |`;
  });
  return ['| Setting | Default | Meaning |', '|---|---|---|', ...rows].join('\n');
}

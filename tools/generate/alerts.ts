import type { Alert, Check } from '../../src/checks/check.ts';
import { severities } from '../../src/checks/check.ts';
import { checks } from '../../src/checks/registry.ts';
import { anchorOf, guidePath } from '../../src/docs/guides.ts';

/** An alert with the check that it belongs to. */
export interface CheckedAlert extends Alert {
  check: Check;
}

/** Every alert, in the order of the checks. */
export const alerts: readonly CheckedAlert[] = checks.flatMap((check) =>
  check.alert ? [{ ...check.alert, check }] : [],
);

const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;

/** Returns the text of monitoring/alerts.yml. */
export function alertsFile(): string {
  const rules = alerts.map((alert) => {
    const { name, expr, for: held, summary, check } = alert;
    return `      - alert: ${name}
        expr: ${quoted(expr)}${held ? `\n        for: ${held}` : ''}
        labels:
          severity: ${check.severity}
        annotations:
          summary: ${quoted(summary)}
          description: ${quoted(`${check.impact} ${check.firstStep}`)}
          runbook_url: http://web:3000${guidePath({ name: 'runbook' })}#${anchorOf(name)}
`;
  });
  return `# Alert rules of Prometheus for Penstock. Generated from src/checks by \`npm run generate\`.
#
# \`summary\` has the place, the fault and the amount. \`description\` has the impact and the first step. \`runbook_url\` is the
# section of docs/runbook.md on the pages of web: replace http://web:3000 with the address at which you reach web.
# test/monitoring compares the rules with the metrics that exist, and tests them with promtool.
#
# Rules are evaluated every 5 s, so that a \`for\` of 15 s ignores what only one scrape has seen, and the alert still fires
# within a minute. Rules with a threshold in seconds need no \`for\`.
groups:
  - name: penstock
    interval: 5s
    rules:
${rules.join('')}`;
}

const MARKS = {
  table: ['<!-- begin: alerts, generated from src/checks -->', '<!-- end: alerts -->'],
  sections: ['<!-- begin: sections, generated from src/checks -->', '<!-- end: sections -->'],
  problems: ['<!-- begin: problems, generated from src/checks -->', '<!-- end: problems -->'],
  machine: [
    '<!-- begin: problems of a machine, generated from src/checks -->',
    '<!-- end: problems of a machine -->',
  ],
} as const;

/** Returns the text of docs/runbook.md with its generated parts replaced. */
export function runbookPage(text: string): string {
  const sorted = severities.flatMap((severity) => alerts.filter(({ check }) => check.severity === severity));
  const table = sorted.map(
    ({ name, meaning, check }) =>
      `| ${check.severity} | [${name}](#${anchorOf(name)}) | ${firstSentence(meaning)} |`,
  );
  return [
    {
      marks: MARKS.table,
      part: `| Severity | Alert | Meaning |\n| --- | --- | --- |\n${table.join('\n')}`,
    },
    { marks: MARKS.sections, part: sorted.map(sectionOf).join('\n\n') },
    {
      marks: MARKS.problems,
      part: problemTable(checks.filter(isOfInstallation)),
    },
    {
      marks: MARKS.machine,
      part: problemTable(
        checks.filter((check) => check.evaluators.includes('machine') && !isOfInstallation(check)),
      ),
    },
  ].reduce(replacePart, text);
}

/** Whether the console, the command line or a process lists the problems of a check, and not only its machine. */
const isOfInstallation = ({ evaluators }: Check) =>
  evaluators.includes('fleet') || evaluators.includes('process');

/** Formats checks as a table in Markdown, the most severe first. */
function problemTable(listed: readonly Check[]): string {
  const rows = severities.flatMap((severity) =>
    listed
      .filter((check) => check.severity === severity)
      .map(
        ({ id, scope, impact, firstStep }) =>
          `| ${severity} | \`${id}\` | ${scope} | ${cell(impact)} | ${cell(firstStep)} |`,
      ),
  );
  return `| Severity | Check | Scope | Impact | First step |\n| --- | --- | --- | --- | --- |\n${rows.join('\n')}`;
}

interface Part {
  marks: readonly [begin: string, end: string];
  part: string;
}

function replacePart(text: string, { marks: [begin, end], part }: Part): string {
  const [before, rest] = text.split(`${begin}\n`);
  const after = rest?.split(`\n${end}`)[1];
  if (after === undefined) throw new Error(`docs/runbook.md has no part between ${begin} and ${end}`);
  return `${before}${begin}\n\n${part}\n\n${end}${after}`;
}

const cell = (text: string) => text.replaceAll('|', '\\|');

const firstSentence = (text: string) => /^.*?\.(?= [A-Z*]|$)/.exec(text)![0];

function sectionOf({ name, meaning, diagnose, fix, check }: CheckedAlert): string {
  return [
    `## ${name}`,
    `**Meaning**: ${meaning}`,
    `**Impact**: ${check.impact}`,
    labelled('Diagnose', diagnose),
    labelled('Fix', fix),
  ].join('\n\n');
}

const isItem = (block: string) => /^(?:-|\d+\.) /.test(block);

/** Joins paragraphs and list items, without empty lines between the items of a list. */
function labelled(label: string, blocks: readonly string[]): string {
  return blocks.reduce((text, block, index) => {
    const before = blocks[index - 1];
    if (before === undefined) return isItem(block) ? `${text}\n\n${block}` : `${text} ${block}`;
    return `${text}${isItem(block) && isItem(before) ? '\n' : '\n\n'}${block}`;
  }, `**${label}**:`);
}

import type { ProcessName } from '../../src/store/processes.ts';
import { type Exported, exported } from './registries.ts';

const cell = (text: string) => text.replaceAll('|', '\\|');

const sections: { title: string; text: string; has(metric: Exported): boolean }[] = [
  {
    title: 'Every process',
    text: '`web`, `worker`, `sync` and `board` export these metrics.',
    has: ({ processes }) => processes.length === 4,
  },
  ...(['web', 'worker', 'sync'] as ProcessName[]).map((process) => ({
    title: process,
    text: `Each value belongs to one process.`,
    has: ({ processes, isOfInstallation }: Exported) =>
      processes.length < 4 && processes[0] === process && !isOfInstallation,
  })),
  {
    title: 'The installation',
    text: 'Every web process reads these values from the queue and the store, so all web processes show the same value. Use `max`, never `sum`. A value that cannot be read within a second is absent or `NaN`, not 0. Sizes are up to a minute old.',
    has: ({ isOfInstallation }) => isOfInstallation,
  },
];

/** Returns the text of docs/metrics.md: every metric with its type, labels and meaning. */
export function metricsPage(): string {
  const penstockMetrics = exported().filter(({ name }) => name.startsWith('penstock_'));
  const parts = sections.map(({ title, text, has }) => {
    const rows = penstockMetrics
      .filter(has)
      .map(({ name, type, labels, help, processes, isOfInstallation }) => {
        const others = isOfInstallation || processes.length === 4 ? [] : processes.slice(1);
        const also = others.length === 0 ? '' : ` Also exported by ${others.join(' and ')}.`;
        const names = labels.map((label) => `\`${label}\``).join(', ');
        return `| \`${name}\` | ${type} | ${names} | ${cell(help)}${also} |`;
      });
    return `## ${title}

${text}

| Metric | Type | Labels | Meaning |
| --- | --- | --- | --- |
${rows.join('\n')}
`;
  });
  return `# Metrics

<!-- Generated from the metric definitions by \`npm run generate\`. -->

This page lists every metric of Penstock. [Monitor](monitoring.md) describes how to scrape them and which alerts exist. Processes also export
the usual metrics of Node.js and of the process, for example \`process_resident_memory_bytes\` and \`nodejs_eventloop_lag_seconds\`.

- A job is a group of accepted objects in the queue. A lane is an ordered queue that one worker at a time applies.
- A name has one unit: seconds, bytes, jobs or ratio.
- A counter ends in \`_total\` and counts what one process did since its start. Use \`sum(rate(…))\` over all processes.
- A label that clients can choose has at most 50 values. Further values are counted as \`other\`.

${parts.join('\n')}`;
}

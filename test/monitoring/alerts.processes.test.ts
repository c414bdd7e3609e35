import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { anchorOf, guidePath } from '../../src/docs/guides.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { SILENT_SECONDS } from '../../src/store/processes.ts';
import { exported } from '../../tools/generate/registries.ts';
import { findPromtool } from '../setup/installed.ts';

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');

interface Rule {
  alert: string;
  expr: string;
  for?: string;
  labels: { severity: string };
  annotations: { summary: string; description: string; runbook_url: string };
}

const { groups } = parse(read('monitoring/alerts.yml')) as { groups: { interval: string; rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);

interface Trial {
  name: string;
  alert_rule_test: { eval_time: string; alertname: string; exp_alerts: unknown[] }[];
}
const { tests: trials } = parse(read('monitoring/alerts.test.yml')) as { tests: Trial[] };

interface Panel {
  title: string;
  targets?: { expr: string }[];
}
const dashboard = JSON.parse(read('monitoring/dashboard.json')) as { panels: Panel[] };
const queries = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => [title, expr] as const),
);

const metrics = exported();
const byId = new Map(metrics.map((metric) => [metric.name, metric]));

/** Finds a metric by its name in a query; a histogram has the suffixes _bucket, _sum and _count. */
const find = (name: string) => byId.get(name) ?? byId.get(name.replace(/_(?:bucket|sum|count)$/, ''));

const namesIn = (expr: string) => expr.match(/\b(?:penstock|process|nodejs)_[a-z0-9_]+/g) ?? [];

/** Labels that Prometheus or a query adds. */
const ADDED = ['instance', 'process', 'le', 'host'];

function labelsIn(expr: string): string[] {
  const chosen = [...expr.matchAll(/[{,]\s*([a-z_]+)\s*=~?"/g)].map(([, label]) => label!);
  const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, labels]) => labels!.split(/,\s*/));
  return [...chosen, ...grouped];
}

function expectKnown(expr: string): void {
  const names = namesIn(expr);
  expect(names.length).toBeGreaterThan(0);
  expect(names.filter((name) => !find(name))).toEqual([]);
  const labels = [...ADDED, ...names.flatMap((name) => find(name)!.labels)];
  expect(labelsIn(expr).filter((label) => !labels.includes(label))).toEqual([]);
  // Every web process exports these metrics with equal values, so a sum would count them several times.
  const summed = [...expr.matchAll(/\bsum(?: by \([^)]*\))? ?\((penstock_[a-z_]+)/g)].map(
    ([, name]) => name!,
  );
  const alike = /^penstock_(?:installation|queue|table|partition|processes|dead_letters_waiting|usage)/;
  expect(summed.filter((name) => alike.test(name))).toEqual([]);
}

test.each(queries)('the dashboard queries only exported metrics and labels: %s, %s', (_, expr) =>
  expectKnown(expr),
);

describe.each(rules)('$alert', (rule) => {
  test('queries only exported metrics and labels', () => expectKnown(rule.expr));

  test('has a summary with location and fault, and a description with impact and first step', () => {
    const { summary, description } = rule.annotations;
    expect(summary).toMatch(/^[^:]+: .+[^.]$/);
    // The description has a sentence with the impact and a sentence with the first step.
    expect(description).toMatch(/\. .+\.$/);
  });

  test('links to its section of the runbook with meaning, impact, diagnosis and fix', () => {
    expect(rule.annotations.runbook_url).toBe(
      `http://web:3000${guidePath({ name: 'runbook' })}#${anchorOf(rule.alert)}`,
    );
    const section = read('docs/runbook.md')
      .split(/^## /m)
      .find((part) => part.startsWith(`${rule.alert}\n`));
    for (const part of ['**Meaning**:', '**Impact**:', '**Diagnose**:', '**Fix**:'])
      expect(section).toContain(part);
    expect(['info', 'warning', 'critical']).toContain(rule.labels.severity);
  });

  test('has one test in which it fires and one in which it stays silent', () => {
    const own = trials.flatMap((trial) =>
      trial.alert_rule_test.filter(({ alertname }) => alertname === rule.alert),
    );
    expect(own.map(({ exp_alerts }) => exp_alerts.length > 0).sort()).toEqual([false, true]);
  });
});

test('all alerts except four by rate or size fire within one minute', () => {
  const slow = trials
    .flatMap(({ alert_rule_test }) => alert_rule_test)
    .filter(({ eval_time, exp_alerts }) => exp_alerts.length > 0 && eval_time !== '1m')
    .map(({ alertname }) => alertname);
  // These alerts report a rate or a size over time, so they need not fire within a minute.
  expect(slow.sort()).toEqual([
    'PenstockMemory',
    'PenstockRateLimited',
    'PenstockReleasesDiffer',
    'PenstockUnexpectedErrors',
  ]);
});

/** Seconds from a fault until /metrics shows it; `past` is the threshold of its alert. */
const shownAfter: [string, (past: number) => number][] = [
  ['PenstockNoWorker', () => SILENT_SECONDS],
  ['PenstockLaneStuck', (past) => past + 1],
  ['PenstockDeadLettersGrow', () => 0],
  ['PenstockSyncFailing', () => 0],
  ['PenstockSyncStands', () => SILENT_SECONDS],
  ['PenstockReplicationLag', (past) => past + 1],
  ['PenstockCertificateExpired', () => 0],
  ['PenstockDiskFilling', () => 0],
];

test.each(shownAfter)(
  '%s fires at most a minute after the fault: page, scrape, evaluation and `for`',
  (alert, shown) => {
    const { expr, for: held = '0s' } = rules.find((rule) => rule.alert === alert)!;
    const past = Number(/> (\d+)$/.exec(expr)?.[1]);
    const [interval, scrape, hold] = [groups[0]!.interval, '15s', held].map((text) =>
      Number.parseInt(text, 10),
    );
    expect(shown(past) + scrape! + interval! + hold!).toBeLessThanOrEqual(60);
  },
);

test('the runbook lists the alerts by severity, with the severity of their rules', () => {
  const listed = [...read('docs/runbook.md').matchAll(/^\| (critical|warning|info) \| \[(\w+)\]/gm)];
  const severities = listed.map(([, severity]) => severity!);
  const order = ['critical', 'warning', 'info'];
  expect(severities).toEqual([...severities].sort((one, other) => order.indexOf(one) - order.indexOf(other)));
  const ofRules = rules.map(({ alert, labels }) => `${labels.severity} ${alert}`).sort();
  expect(listed.map(([, severity, alert]) => `${severity} ${alert}`).sort()).toEqual(ofRules);
});

test('the runbook lists faults 1 to 30', () => {
  const faults = [...read('docs/runbook.md').matchAll(/^\| (\d+) \|/gm)].map(([, number]) => Number(number));
  expect(faults).toEqual(Array.from({ length: 30 }, (_, index) => index + 1));
});

test('promtool accepts the alert rules and all their tests pass', async () => {
  const file = await findPromtool();
  const promtool = (...words: string[]) => spawnSync(file, words, { cwd: packageRoot, encoding: 'utf8' });
  const checked = promtool('check', 'rules', 'monitoring/alerts.yml');
  expect([checked.status, checked.stderr]).toEqual([0, '']);
  const tried = promtool('test', 'rules', 'monitoring/alerts.test.yml');
  expect([tried.status, tried.stdout, tried.stderr]).toEqual([0, expect.stringContaining('SUCCESS'), '']);
});

import { expect, test } from 'vitest';
import { boundLabel } from '../../src/processes/metrics.ts';
import { exported } from '../../tools/generate/registries.ts';

const all = exported();
const ours = all.filter(({ name }) => name.startsWith('penstock_'));

/** Names of units that are not base units of Prometheus. */
const SCALED =
  /(?:^|_)(?:ms|millis|milliseconds|microseconds|minutes|hours|days|kilobytes|kb|megabytes|mb|gb|bits|percent|percentage)(?:_|$)/;

test('exports metrics of Penstock and of Node', () => {
  expect(ours.length).toBeGreaterThan(40);
  expect(all.length).toBeGreaterThan(ours.length);
});

test.each(all)('$name has a lower-case name, a help text, and no labels reserved by Prometheus', (metric) => {
  expect(metric.name).toMatch(/^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/);
  expect(metric.help.length).toBeGreaterThan(10);
  for (const label of metric.labels) {
    expect(label).toMatch(/^[a-z][a-z_]*$/);
    expect(['le', 'quantile', 'job', 'instance']).not.toContain(label);
  }
});

test.each(all)('$name uses a base unit as the suffix of its name', ({ name }) => {
  expect(name).not.toMatch(SCALED);
  // A unit is the last part of the name, or the part before `_total`.
  const unit = /_(seconds|bytes|ratio|jobs)_(?!total$|timestamp)/.exec(name);
  expect(unit?.[0]).toBeUndefined();
});

test.each(all)('$name ends in _total only if it is a counter', ({ name, type }) => {
  expect(name.endsWith('_total')).toBe(type === 'counter');
  expect(name).not.toMatch(/_(?:count|sum|bucket)$/);
  expect(name).not.toMatch(/(?:gauge|counter|histogram)/);
});

test('no Penstock metric has its unit in a label', () => {
  expect(ours.filter(({ labels }) => labels.includes('unit'))).toEqual([]);
});

test('metrics of the whole installation are gauges; only workers export the counters', () => {
  const fleet = ours.filter(({ name }) => name.startsWith('penstock_installation_'));
  expect(fleet.length).toBeGreaterThan(0);
  for (const { type } of fleet) expect(type).toBe('gauge');
});

test('a label with unbounded values keeps the first values and combines the others', () => {
  const shownAs = boundLabel(2);
  expect(['a', 'b', 'c', 'a', undefined].map(shownAs)).toEqual(['a', 'b', 'other', 'a', 'other']);
});

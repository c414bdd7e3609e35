import { expect, test } from 'vitest';
import { boundLabel } from '../../src/processes/metrics.ts';
import { exported } from '../../tools/generate/registries.ts';

const all = exported();
const ours = all.filter(({ name }) => name.startsWith('penstock_'));

/** Prometheus's words of units that are none of its base units. */
const SCALED =
  /(?:^|_)(?:ms|millis|milliseconds|microseconds|minutes|hours|days|kilobytes|kb|megabytes|mb|gb|bits|percent|percentage)(?:_|$)/;

test('there are metrics of ours and of Node', () => {
  expect(ours.length).toBeGreaterThan(40);
  expect(all.length).toBeGreaterThan(ours.length);
});

test.each(all)(
  '$name has a name of small letters, a help, and labels that Prometheus leaves free',
  (metric) => {
    expect(metric.name).toMatch(/^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/);
    expect(metric.help.length).toBeGreaterThan(10);
    for (const label of metric.labels) {
      expect(label).toMatch(/^[a-z][a-z_]*$/);
      expect(['le', 'quantile', 'job', 'instance']).not.toContain(label);
    }
  },
);

test.each(all)('$name is in a base unit, which its name ends in', ({ name }) => {
  expect(name).not.toMatch(SCALED);
  // A unit stands at the end, or before `_total`.
  const unit = /_(seconds|bytes|ratio|jobs)_(?!total$|timestamp)/.exec(name);
  expect(unit?.[0]).toBeUndefined();
});

test.each(all)('$name ends in _total if it is a counter, and only then', ({ name, type }) => {
  expect(name.endsWith('_total')).toBe(type === 'counter');
  expect(name).not.toMatch(/_(?:count|sum|bucket)$/);
  expect(name).not.toMatch(/(?:gauge|counter|histogram)/);
});

test('no metric of ours has its unit in a label: one name, one unit', () => {
  expect(ours.filter(({ labels }) => labels.includes('unit'))).toEqual([]);
});

test('what the whole installation has counted is a gauge: its counters stand on the workers alone', () => {
  const fleet = ours.filter(({ name }) => name.startsWith('penstock_installation_'));
  expect(fleet.length).toBeGreaterThan(0);
  for (const { type } of fleet) expect(type).toBe('gauge');
});

test('a label with any number of values shows the first of them, and the others as one', () => {
  const shownAs = boundLabel(2);
  expect(['a', 'b', 'c', 'a', undefined].map(shownAs)).toEqual(['a', 'b', 'other', 'a', 'other']);
});

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { drawFlames } from '../../tools/bench/flame/draw.ts';
import { nameFrame } from '../../tools/bench/flame/frame-name.ts';
import { heaviest } from '../../tools/bench/flame/heaviest.ts';
import { type CpuProfile, sumStacks } from '../../tools/bench/flame/profile.ts';

const file = (name: string) => pathToFileURL(path.join(packageRoot, name)).href;

/** main calls parse and, in two places, write; samples are 1 ms apart. */
const profile: CpuProfile = {
  startTime: 0,
  nodes: [
    { id: 1, callFrame: { functionName: '(root)', url: '' }, children: [2, 3, 7] },
    { id: 2, callFrame: { functionName: '(idle)', url: '' } },
    { id: 3, callFrame: { functionName: 'main', url: file('dist/src/web.js') }, children: [4, 5, 6] },
    { id: 4, callFrame: { functionName: 'parse<T>', url: file('dist/src/edge/body.js') } },
    { id: 5, callFrame: { functionName: 'write', url: file('node_modules/@scope/pkg/lib/index.js') } },
    { id: 6, callFrame: { functionName: 'write', url: file('node_modules/@scope/pkg/lib/other.js') } },
    { id: 7, callFrame: { functionName: '(garbage collector)', url: '' } },
  ],
  samples: [3, 2, 4, 4, 5, 6, 7, 3, 2],
  timeDeltas: [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000],
};

test('samples are added up by stack, without idle time', () => {
  const root = sumStacks(profile);
  expect(root.total).toBe(7000);
  const main = root.children.get('main src/web.ts')!;
  expect(main).toMatchObject({ total: 6000, self: 2000, origin: 'ours' });
  expect([...main.children].map(([name, { total, origin }]) => [name, total, origin])).toEqual([
    ['parse<T> src/edge/body.ts', 2000, 'ours'],
    ['write node_modules/@scope/pkg', 2000, 'package'],
  ]);
  expect(root.children.get('garbage collection')?.total).toBe(1000);
  expect(heaviest(root).map(({ frame }) => frame)).toContain('write node_modules/@scope/pkg');
});

test('samples outside of the span are omitted', () => {
  const root = sumStacks(profile, { from: 3000, to: 6000 });
  expect(root.total).toBe(4000);
  expect(root.children.has('garbage collection')).toBe(false);
  expect(() => sumStacks(profile, { from: 1e9, to: 2e9 })).toThrow('no sample');
});

test('a frame contains no path of this machine', () => {
  const named = (functionName: string, url: string) => nameFrame({ functionName, url }, '/some/where').name;
  expect(named('a', 'file:///some/where/dist/workers/batch/apply.js')).toBe('a workers/batch/apply.ts');
  expect(named('b', 'file:///some/where/node_modules/x/node_modules/pg/lib/query.js')).toBe(
    'b node_modules/pg',
  );
  expect(named('c', 'node:internal/process/task_queues')).toBe('c node:internal/process/task_queues');
  expect(named('', 'file:///home/someone/else.js')).toBe('anonymous else.ts');
  expect(named('(program)', '')).toBe('native code of Node and V8');
});

test('a drawing has the share of each frame, shortens long names, and omits tiny frames', () => {
  const root = sumStacks(profile);
  root.children.get('main src/web.ts')!.children.set('tiny', {
    name: 'tiny',
    origin: 'engine',
    total: root.total * 0.002,
    self: root.total * 0.002,
    children: new Map(),
  });
  const svg = drawFlames(root, 'web & more');
  expect(svg).toContain('<title>parse&lt;T&gt; src/edge/body.ts: 28.6 %, 28.6 % in itself</title>');
  expect(svg).toContain('<title>main src/web.ts: 85.7 %, 28.6 % in itself</title>');
  expect(svg).toContain('web &amp; more');
  expect(svg).not.toContain('tiny');
  expect(svg).not.toContain('<script');
  for (const [, width, text = ''] of svg.matchAll(
    /width="([\d.]+)" height="16"\/>(?:<text[^>]*>([^<]*))?/g,
  )) {
    expect(text.replaceAll(/&\w+;/g, '.').length * 6.7).toBeLessThanOrEqual(Number(width));
  }
});

test.each(['flame-edge.svg', 'flame-worker.svg'])(
  'generated/%s is small and has no script and no path',
  (name) => {
    const svg = readFileSync(path.join(packageRoot, 'generated', name), 'utf8');
    expect(svg.length).toBeLessThan(300_000);
    expect(svg).toContain('<title>all: 100.0 %');
    expect(svg).not.toMatch(/<script|file:|\/home\/|\/work\/|\/tmp\/|\/root\//);
  },
);

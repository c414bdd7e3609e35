import { gzipSync } from 'node:zlib';
import { createWorkspace } from '../../../test/setup/workspace.ts';
import { residentMegabytes } from '../../resident-megabytes.ts';
import { probe } from '../probe.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

const LIMIT = 4_194_304;
const IN_FLIGHT = { long: 64, short: 32 };

/** Returns JSON with exactly the given number of bytes. */
function bodyOf(bytes: number): string {
  const [head, tail] = ['{"attributes":[{"external_id":"large"}],"partner":"', '"}'];
  return `${head}${'x'.repeat(bytes - head.length - tail.length)}${tail}`;
}

function chunked(text: string): ReadableStream {
  const bytes = Buffer.from(text);
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(at, at + 65_536));
      at += 65_536;
    },
  });
}

/** Sends rounds of concurrent requests. @returns the maximum growth of the process in megabytes */
async function grow(
  pid: number,
  { rounds, inFlight }: { rounds: number; inFlight: number },
  send: () => ReturnType<typeof probe>,
) {
  const before = residentMegabytes(pid) ?? Number.NaN;
  let peak = before;
  const watch = setInterval(() => {
    peak = Math.max(peak, residentMegabytes(pid) ?? 0);
  }, 20);
  const answers: Awaited<ReturnType<typeof probe>>[] = [];
  for (let round = 0; round < rounds; round++) {
    answers.push(...(await Promise.all(Array.from({ length: inFlight }, send))));
  }
  clearInterval(watch);
  return { growth: peak - before, answers };
}

export const largeBodies: Scenario = {
  number: 19,
  fault: 'bodies of 4 MB, 4 MB + 1, gzip bombs, wrong charset, BOM, chunked without length',
  backends: ['redis'],
  async run(scene) {
    const { fleet, load, circles } = await beginTraffic(scene, { edges: 1, workers: 1 });
    const { key } = await createWorkspace(fleet.pool, 'large');
    const { port, pid } = fleet.edges[0]!;
    const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024, ' '));
    const large = bodyOf(LIMIT);
    const json = 'application/json';
    const kinds: [name: string, send: () => ReturnType<typeof probe>, wanted: number[]][] = [
      ['4 MB', () => probe(port, key, bodyOf(LIMIT)), [201]],
      // A client that gets a response before it has sent everything may find the connection closed.
      ['4 MB + 1', () => probe(port, key, bodyOf(LIMIT + 1)), [413, 0]],
      ['4 MB + 1 in chunks', () => probe(port, key, chunked(bodyOf(LIMIT + 1))), [413, 0]],
      ['in chunks', () => probe(port, key, chunked(bodyOf(100_000))), [201]],
      ['a gzip bomb', () => probe(port, key, bomb, { 'content-encoding': 'gzip' }), [413]],
      // JSON is always UTF-8 (RFC 8259), so the parameter has no effect.
      [
        'charset=utf-16',
        () => probe(port, key, bodyOf(100), { 'content-type': `${json}; charset=utf-16` }),
        [201],
      ],
      ['a byte order mark', () => probe(port, key, `\ufeff${bodyOf(100)}`), [201]],
    ];
    for (const [name, send, wanted] of kinds) {
      const { status, text } = await send();
      scene.figure(`${name}: status`, status, '', {
        atLeast: Math.min(...wanted),
        atMost: Math.max(...wanted),
      });
      if (!wanted.includes(status)) scene.notes.push(`${name}: ${status} ${text.slice(0, 200)}`);
    }
    const crowds: [name: string, send: () => ReturnType<typeof probe>, wanted: number[]][] = [
      ['bombs', () => probe(port, key, bomb, { 'content-encoding': 'gzip' }), [413, 503]],
      ['bodies of 4 MB', () => probe(port, key, large), [201, 503]],
      ['bodies of 4 MB without a length', () => probe(port, key, chunked(large)), [201, 503]],
    ];
    const inFlight = scene.choose(IN_FLIGHT.long, IN_FLIGHT.short);
    for (const [name, send, wanted] of crowds) {
      const { growth, answers } = await grow(pid, { rounds: scene.choose(5, 1), inFlight }, send);
      scene.figure(`growth with ${inFlight} ${name} in flight`, growth, 'MB', {
        // The short form runs alongside other tests, where a process collects its garbage later.
        atMost: scene.choose(50, 150),
      });
      const odd = answers.filter(({ status }) => !wanted.includes(status));
      scene.figure(`${name}: answers but ${wanted.join(' and ')}`, odd.length, '', { atMost: 0 });
      scene.notes.push(
        ...odd.slice(0, 3).map(({ status, text }) => `${name}: ${status} ${text.slice(0, 200)}`),
      );
      const done = answers.filter(({ status }) => status === wanted[0]).length;
      scene.notes.push(`${name}: ${done} of ${answers.length} answered with ${wanted[0]}`);
    }
    await scene.waitUntilApplied(fleet, { load, circles, growth: scene.choose(150, 400) });
  },
};

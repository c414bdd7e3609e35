/**
 * Draws generated/throughput-latency.svg anew from tools/bench/results.json, as a full `npm run bench -- --curve` does.
 *
 *   npm run charts
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/package-root.ts';
import { writeCharts } from './chart/write.ts';
import type { Results } from './results.ts';

const file = 'tools/bench/results.json';
const results: Results = JSON.parse(readFileSync(path.join(packageRoot, file), 'utf8'));
if (!writeCharts(results)) {
  process.stderr.write(`error: ${file} has no rows load-…: npm run bench -- --curve measures them\n`);
  process.exitCode = 1;
}

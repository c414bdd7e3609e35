/**
 * Redraws generated/throughput-latency.svg from generated/bench-results.json, as a full `npm run bench --
 * --curve` does, and generated/shapes.svg from generated/bench-shapes.json, as `npm run bench -- --shapes` does.
 *
 *   npm run charts
 */
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { writeCharts, writeShapes } from './chart/write.ts';
import type { Results } from './results.ts';

const file = 'generated/bench-results.json';
const results: Results = JSON.parse(readFileSync(path.join(packageRoot, file), 'utf8'));
if (!writeCharts(results)) {
  process.stderr.write(`error: ${file} has no rows load-…: npm run bench -- --curve measures them\n`);
  process.exitCode = 1;
}

const ofShapes = path.join(packageRoot, 'generated/bench-shapes.json');
if (existsSync(ofShapes)) writeShapes(JSON.parse(readFileSync(ofShapes, 'utf8')) as Results);

// Measures the time from the start of a command to its first response, and its processor time and memory, also while it is
// idle. Linux only.
//
//   node tools/start-time.mjs --runs 5 --idle 30 -- node dist/bundle/cli.js dev --port 0 --json
//   node tools/start-time.mjs --url http://127.0.0.1:3999 -- npx mockoon-cli start --data environment.json
//
// Without --url, the script reads the address and the API key from the first line of output, which must be JSON.
// --requests 50 sends 50 requests, five per second. For other servers, set --path and --key. --any accepts every status.
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ...{ runs: { type: 'string', default: '1' }, url: { type: 'string' } },
    ...{ path: { type: 'string', default: '/users/track' }, key: { type: 'string', default: 'none' } },
    ...{ any: { type: 'boolean', default: false } },
    ...{ idle: { type: 'string', default: '0' }, requests: { type: 'string', default: '0' } },
  },
});

/** Milliseconds from the first response to the measurement of memory, and from there to the start of the idle time. */
const SETTLE_MS = 1500;
const CALM_MS = 10_000;

/** Milliseconds of a clock tick in /proc. */
const TICK_MS = 10;

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/**
 * Returns the fields of /proc/<pid>/stat after the name of the program. Field 1 is the id of the parent. Fields 11 and 12
 * are the user and system time, fields 13 and 14 those of children that have ended.
 */
const statOf = (pid) =>
  read(`/proc/${pid}/stat`)
    .replace(/^.*\) /s, '')
    .split(' ');

/** Returns the ids of a process and of all its descendants. */
function treeOf(root) {
  const all = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  const tree = [String(root)];
  for (const parent of tree) tree.push(...all.filter((pid) => statOf(pid)[1] === parent));
  return tree;
}

const sum = (numbers) => numbers.reduce((total, value) => total + value, 0);

/** Returns the processor time of processes in milliseconds, including their children that have ended. */
const processorTime = (pids) => TICK_MS * sum(pids.map((pid) => sum(statOf(pid).slice(11, 15).map(Number))));

/** Returns the memory of processes in megabytes. A shared page is counted once. */
const memoryOf = (pids) =>
  Math.round(
    sum(pids.map((pid) => Number(/^Pss:\s+(\d+)/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0))) / 1024,
  );

/** Returns the milliseconds of processor time that a process tree uses during some work, and the percentage of one core. */
async function shareDuring(root, work) {
  const [before, begin] = [processorTime(treeOf(root)), performance.now()];
  await work();
  const spent = processorTime(treeOf(root)) - before;
  return { spent, percent: ((100 * spent) / (performance.now() - begin)).toFixed(2) };
}

for (let run = 0; run < Number(values.runs); run++) {
  const begin = performance.now();
  const [command, ...words] = positionals;
  const child = spawn(command, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  const line = await new Promise((resolve) => {
    if (values.url) resolve(JSON.stringify({ url: values.url, api_key: values.key }));
    else createInterface(child.stdout).once('line', resolve);
  });
  const { url, api_key } = JSON.parse(line);
  const track = async (number) => {
    const response = await fetch(`${url}${values.path}`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${api_key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ attributes: [{ external_id: `user-${number}`, first_name: 'Ada' }] }),
    });
    await response.text();
    return values.any || response.status === 201;
  };
  while (!(await track(0).catch(() => false))) await sleep(5);
  const milliseconds = Math.round(performance.now() - begin);
  await sleep(SETTLE_MS);
  const tree = treeOf(child.pid);
  const parts = [`first response after ${milliseconds} ms`, `${processorTime(tree)} ms of processor time`];
  parts.push(`${memoryOf(tree)} MB`, `${tree.length} processes`);
  if (values.idle !== '0') {
    await sleep(CALM_MS);
    const { percent } = await shareDuring(child.pid, () => sleep(1000 * Number(values.idle)));
    parts.push(`idle ${percent} % of a core`, `${memoryOf(treeOf(child.pid))} MB`);
  }
  const count = Number(values.requests);
  if (count > 0) {
    const { spent, percent } = await shareDuring(child.pid, async () => {
      for (let number = 1; number <= count; number++) await Promise.all([track(number), sleep(200)]);
    });
    parts.push(`5 requests per second ${percent} % of a core, ${(spent / count).toFixed(1)} ms each`);
  }
  process.stdout.write(`${parts.join(', ')}\n`);
  child.kill('SIGTERM');
  await new Promise((resolve) => child.once('exit', resolve));
}

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { freePort } from '../../src/embedded/address.ts';
import { packageRoot } from '../../src/platform/package-root.ts';
import { findChromium } from '../../test/setup/chromium.ts';
import { spawnOnLeash } from '../../test/setup/leash.ts';

// Writes generated/preference-center.png: the page of docs/preference-center.html, of a Penstock that this starts in a
// temporary folder and ends again. npm run build && npm run screenshot

const folder = mkdtempSync(path.join(tmpdir(), 'penstock-screenshot-'));
const key = randomBytes(24).toString('hex');
const [port, boardPort] = await Promise.all([freePort(), freePort()]);
const env = {
  DATA_DIR: folder,
  PORT: String(port),
  BOARD_PORT: String(boardPort),
  WORKER_PORT: '0',
  BOOTSTRAP_API_KEY: key,
  LOG_LEVEL: 'warn',
};
const node = (...args: string[]) => [process.execPath, ...args.map((arg) => path.join(packageRoot, arg))];
const penstock = spawnOnLeash(node('dist/src/start.js'), { cwd: packageRoot, env, stdout: 'ignore' });

try {
  await until(async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).ok);
  const groups = { NEWS_GROUP: await makeGroup('News'), OFFERS_GROUP: await makeGroup('Offers') };
  await call('POST', '/users/track', {
    attributes: [
      {
        external_id: 'ada',
        first_name: 'Ada',
        email: 'ada@example.com',
        subscription_groups: [{ subscription_group_id: groups.NEWS_GROUP, subscription_state: 'subscribed' }],
      },
    ],
  });
  const { preference_center_api_id: id } = await call('POST', '/preference_center/v1', {
    name: 'choices',
    preference_center_title: 'Your choices',
    preference_center_page_html: template('preference-center.html', groups),
    confirmation_page_html: template('preference-center-saved.html', groups),
    options: { 'meta-viewport-content': 'width=device-width, initial-scale=1' },
  });
  // The worker has made the user when the link can be had.
  const url = await until(async () => {
    return (await call('GET', `/preference_center/v1/${id}/url/ada`)).preference_center_url;
  });
  await takePicture(url, path.join(packageRoot, 'generated/preference-center.png'));
} finally {
  penstock.child.kill('SIGTERM');
  await penstock.exit;
  rmSync(folder, { recursive: true, force: true });
}

async function takePicture(url: string, file: string): Promise<void> {
  const browser = await chromium.launch({
    executablePath: await findChromium(),
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
  });
  try {
    const page = await browser.newPage({ viewport: { width: 720, height: 560 } });
    await page.goto(url);
    await page.screenshot({ path: file });
  } finally {
    await browser.close();
  }
}

async function makeGroup(name: string): Promise<string> {
  const [command, ...args] = node('dist/src/cli.js') as [string, ...string[]];
  const words = `groups create --workspace default --name ${name} --channel email --json`.split(' ');
  const { stdout } = await promisify(execFile)(command, [...args, ...words], { env: { DATA_DIR: folder } });
  return JSON.parse(stdout).subscription_group_id;
}

function template(file: string, groups: Record<string, string>): string {
  const text = readFileSync(path.join(packageRoot, 'docs', file), 'utf8');
  return Object.entries(groups).reduce((filled, [name, id]) => filled.replaceAll(name, id), text);
}

async function call(method: string, where: string, body?: object): Promise<Record<string, string>> {
  const response = await fetch(`http://127.0.0.1:${port}${where}`, {
    method,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${where}: ${response.status} ${text}`);
  return JSON.parse(text);
}

async function until<T>(ask: () => Promise<T>): Promise<NonNullable<T>> {
  const end = Date.now() + 60_000;
  for (;;) {
    const answer = await ask().catch((error: unknown) => {
      if (Date.now() > end) throw error;
    });
    if (answer) return answer;
    await sleep(100);
  }
}

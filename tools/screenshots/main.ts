import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type Browser, chromium, type Page } from 'playwright-core';
import { packageRoot } from '../../src/platform/files.ts';
import { findChromium } from '../../test/setup/installed.ts';
import { waitUntil } from '../../test/setup/wait-until.ts';
import {
  seedDeliveries,
  seedHistory,
  seedPeople,
  seedPreferenceCenter,
  seedUsers,
  startTrickle,
} from './data.ts';
import { type Installation, startInstallation } from './installation.ts';

// Writes the pictures in generated/screenshots. Starts an installation with sample data in a temporary folder, and stops it
// at the end:
//
//   npm run build && npm run screenshots
//
// By default, traffic runs for 10 s before the first picture. With `npm run screenshots -- --warm-up 120`, pages about the
// last minutes show more data.
//
// With `npm run screenshots -- --every <folder>`, it writes a picture of every page of the console at 1440 and 390 px to
// that folder instead, and lists the elements that are cut. It follows the links of each page.

const folder = path.join(packageRoot, 'generated/screenshots');
const MAX_BYTES = 1_000_000;
const WIDE = { width: 1280, height: 800 };
const LOW = { width: 1280, height: 460 };
const PHONE = { width: 390, height: 780 };

/** Maximum height of a picture of a whole page. */
const HEIGHT = 'Math.min(document.documentElement.scrollHeight, 2600)';

/** Script that returns the captions of tables that are wider than their box, and whether the page is too wide. */
const CUT = `[
  ...[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.getAttribute('aria-label') + ': ' + one.scrollWidth + ' of ' + one.clientWidth + ' px'),
  ...(document.documentElement.scrollWidth > innerWidth ? ['the page'] : []),
]`;

/** Pages that no link of another page opens, or that only someone without a session sees. */
const WITHOUT_LINK = ['/history', '/sessions', '/search', '/search?q=ada.lovelace', '/nothing-here'];
const SIGNED_OUT = ['/sign-in', '/invitation?token=expired'];

/** Maximum number of pages, so that a page that links to ever new kinds of pages does not keep the command running. */
const MAX_PAGES = 150;

interface Picture {
  name: string;
  /** URL of the page. */
  at: string;
  scheme?: 'light' | 'dark';
  size?: { width: number; height: number };
}

const { values } = parseArgs({
  options: { 'warm-up': { type: 'string', default: '10' }, every: { type: 'string' } },
});
const warmUp = Number(values['warm-up']);
if (!(warmUp >= 0)) throw new Error('--warm-up is a number of seconds');

const taken = new Map<string, Buffer>();
let endTrickle = async () => {};
const installation = await startInstallation();
const browser = await chromium.launch({
  executablePath: await findChromium(),
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
});
try {
  if (values.every === undefined) await takeAll(installation, browser);
  else await takeEvery(installation, browser, path.resolve(values.every));
} finally {
  await endTrickle();
  await browser.close();
  await installation.stop();
}
if (values.every === undefined) replacePictures();

/** Replaces the existing pictures after all new pictures were taken. */
function replacePictures() {
  const bytes = [...taken.values()].reduce((sum, { length }) => sum + length, 0);
  if (bytes > MAX_BYTES) throw new Error(`the pictures have ${bytes} bytes, more than ${MAX_BYTES}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const [name, picture] of taken) writeFileSync(path.join(folder, `${name}.webp`), picture);
  process.stdout.write(`${taken.size} pictures, ${Math.round(bytes / 1000)} KB\n`);
}

/** Signs in to the console with the form. */
async function openConsole(page: Page, { console: { url, user, password } }: Installation): Promise<void> {
  await page.goto(`${url}/sign-in`);
  await page.getByLabel('Email address or user').fill(user);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(`${url}/`);
}

/** Returns the kind of a page: its address without ids, and the names of its query. */
function kindOf(at: string): string {
  const { pathname, searchParams } = new URL(at, 'http://console');
  const names = [...searchParams.keys()].filter((name) => name !== 'workspace').sort();
  const onePath = pathname.replace(/^\/limits\/.+/, '/limits/one');
  return [onePath.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}(?:\.[0-9a-f]+)?|[0-9a-f]{24}/g, 'one'), ...names]
    .join('-')
    .replaceAll(/\W+/g, '-')
    .replace(/^-/, '')
    .slice(0, 60);
}

/** Writes a picture of one page of each kind that links open, and of the pages of `WITHOUT_LINK` and `SIGNED_OUT`. */
async function takeEvery(penstock: Installation, browser: Browser, to: string): Promise<void> {
  await seedPreferenceCenter(penstock, await seedUsers(penstock));
  endTrickle = startTrickle(penstock);
  await sleep(warmUp * 1000);
  await seedHistory(penstock);
  await seedPeople(penstock);
  await seedDeliveries(penstock);
  const { url } = penstock.console;
  mkdirSync(to, { recursive: true });
  const context = await browser.newContext({ colorScheme: 'light', reducedMotion: 'reduce' });
  const page = await context.newPage();
  for (const at of SIGNED_OUT) await takeBoth(page, { name: kindOf(at), at: url + at }, to);
  await openConsole(page, penstock);
  const found = new Map(['/', ...WITHOUT_LINK].map((at) => [kindOf(at), at]));
  // The map grows while it is walked.
  for (const [name, at] of found) {
    const response = await page.goto(url + at, { waitUntil: 'load' });
    const isPage = response?.headers()['content-type']?.startsWith('text/html') ?? false;
    if (!isPage || at.startsWith('/queues')) {
      found.delete(name);
      continue;
    }
    for (const link of await linksOf(page))
      if (!found.has(kindOf(link)) && found.size < MAX_PAGES) found.set(kindOf(link), link);
    await takeBoth(page, { name: name || 'health', at: url + at }, to);
  }
  await takeBoth(page, { name: 'queues', at: `${url}/queues` }, to);
  process.stdout.write(`${found.size + SIGNED_OUT.length + 1} pages in ${to}\n`);
  await context.close();
}

/** Returns the links of a page to other pages of the console, without downloads and the sign-out. */
async function linksOf(page: Page): Promise<string[]> {
  const links = await page
    .locator('a[href^="/"]')
    .evaluateAll((all) =>
      all.map((one) => (one as { getAttribute(name: string): string }).getAttribute('href')),
    );
  return links
    .map((link) => link.split('#', 1)[0]!)
    .filter(
      (link) => link !== '' && !/\.csv|\/export$|\/download|^\/sign-out|[?&](after|before)=/.test(link),
    );
}

/** Writes a picture of a page at both widths, and lists the elements that are cut. */
async function takeBoth(page: Page, { name, at }: Pick<Picture, 'name' | 'at'>, to: string): Promise<void> {
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: 900 });
    // The dashboard of the queues loads its data with a script.
    await page.goto(at, { waitUntil: name === 'queues' ? 'networkidle' : 'load' });
    const cut = await page.evaluate<string[]>(CUT);
    for (const text of cut) process.stdout.write(`${name}-${width}: cut: ${text}\n`);
    const session = await page.context().newCDPSession(page);
    const { data } = await session.send('Page.captureScreenshot', {
      ...{ format: 'webp', quality: 50, captureBeyondViewport: true },
      clip: { x: 0, y: 0, width, height: await page.evaluate<number>(HEIGHT), scale: 1 },
    });
    await session.detach();
    writeFileSync(path.join(to, `${name}-${width}.webp`), Buffer.from(data, 'base64'));
  }
}

async function takeAll(penstock: Installation, browser: Browser): Promise<void> {
  const groups = await seedUsers(penstock);
  const link = await seedPreferenceCenter(penstock, groups);
  endTrickle = startTrickle(penstock);
  await sleep(warmUp * 1000);
  const context = await browser.newContext({ viewport: WIDE, deviceScaleFactor: 1.5, colorScheme: 'light' });
  const page = await context.newPage();
  const take = async (pictures: Picture[]) => {
    for (const picture of pictures) await takePicture(page, picture);
  };
  const { url } = penstock.console;
  await openConsole(page, penstock);
  await take([{ name: 'health', at: url }]);
  await seedHistory(penstock);
  const { request } = await seedPeople(penstock);
  await page.goto(`${url}/users?q=ada.lovelace`);
  const user_ = await page.getByRole('link', { name: 'ada.lovelace', exact: true }).getAttribute('href');
  await page.goto(`${url}/workspaces`);
  const workspace = await page.getByRole('link', { name: 'default', exact: true }).getAttribute('href');
  await take([
    { name: 'health-dark', at: url, scheme: 'dark' },
    { name: 'user', at: `${url}${user_}` },
    { name: 'user-phone', at: `${url}${user_}`, size: PHONE, scheme: 'dark' },
    { name: 'dead-letters', at: `${url}/dead-letters`, size: LOW },
    { name: 'syncs-dark', at: `${url}/syncs`, scheme: 'dark', size: LOW },
    { name: 'workspace', at: `${url}${workspace}` },
    { name: 'request', at: `${url}/requests/${request}`, size: LOW },
    { name: 'keys', at: `${url}/keys`, size: LOW },
    { name: 'segments', at: `${url}/segments`, size: LOW },
    { name: 'accounts', at: `${url}/accounts`, size: LOW },
    { name: 'teams-dark', at: `${url}/permission-sets`, scheme: 'dark', size: LOW },
    { name: 'audit', at: `${url}/audit` },
    { name: 'docs', at: penstock.docs },
    { name: 'docs-operation-dark', at: `${penstock.docs}/reference/users.track`, scheme: 'dark' },
    { name: 'docs-guide-phone', at: `${penstock.docs}/guides/api`, size: PHONE },
    { name: 'preference-center', at: link, size: { width: 720, height: 560 } },
  ]);
  await context.close();
}

/** Takes the picture of a page as WebP, which has a third of the bytes of PNG. */
async function takePicture(page: Page, { name, at, scheme = 'light', size = WIDE }: Picture): Promise<void> {
  await page.setViewportSize(size);
  await page.emulateMedia({ colorScheme: scheme });
  await page.goto(at, { waitUntil: 'load' });
  const session = await page.context().newCDPSession(page);
  // Try again if the browser has not drawn the page yet after a change of its size.
  const { data } = await waitUntil(
    () =>
      session.send('Page.captureScreenshot', { format: 'webp', quality: 82, captureBeyondViewport: false }),
    { what: `the picture ${name}`, deadline: 20_000 },
  );
  await session.detach();
  taken.set(name, Buffer.from(data, 'base64'));
}

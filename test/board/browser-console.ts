import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { v7 as uuidv7 } from 'uuid';
import { toProfileId, toServiceId } from '../../src/profile/identifier.ts';
import { createApiKey } from '../../src/store/api-keys.ts';
import { createIntegration } from '../setup/integrations.ts';
import { isLong } from '../setup/length.ts';
import { openConsole } from './console-scene.ts';
import { account, tester } from './installation.ts';
import { DEFAULT_COMPANY } from './people.ts';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Markup that runs a script or loads an image unless it is escaped. */
export const script =
  '<img src="/healthz?x" onerror="document.title=\'run\'"><script>document.title="run"</script>';

/** The same markup with Arabic text and a character that reverses the direction of the text after it. */
export const hostile = `${script} مريم \u202eZahra`;

/** Signs in with the form. */
export async function signIn(page: Page, url: string, { user, password } = account): Promise<void> {
  await page.context().clearCookies();
  await page.goto(`${url}/sign-in`);
  await page.getByLabel('Email address or user').fill(user);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Health' }).waitFor();
}

/** Returns axe's findings on the current page. Frames are excluded, because they show content of customers. */
export async function findings(page: Page, rules?: string[]): Promise<string[]> {
  if (!(await page.evaluate('"axe" in window'))) await page.evaluate(`${axe};0`);
  const options = { iframes: false, ...(rules && { runOnly: { type: 'rule', values: rules } }) };
  return page.evaluate(
    `axe.run(document, ${JSON.stringify(options)}).then(({ violations }) => violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => id + ': ' + html.slice(0, 200) + failureSummary)))`,
  );
}

interface Screen {
  width: number;
  colorScheme: 'light' | 'dark';
  /** Rules of axe to run: absent for all, empty for none. */
  rules?: string[];
}

const wide: Screen = { width: 1280, colorScheme: 'light' };
export const narrow: Screen = { width: 390, colorScheme: 'dark' };

/**
 * Rules for the second color scheme of a width. Pages differ only in colors between schemes, so two rules are enough.
 */
const COLOURS = ['color-contrast', 'link-in-text-block'];
const everyScreen: Screen[] = [
  wide,
  { width: 1280, colorScheme: 'dark', rules: COLOURS },
  narrow,
  { width: 390, colorScheme: 'light', rules: COLOURS },
];

/**
 * Selects screens in turns. The long form of the tests checks each page on every screen. The short form opens it in
 * both widths and runs axe in one of them with one scheme. Pages share their components, so each component is checked
 * on several pages.
 */
let turn = 0;
function screensOfTurn(): Screen[] {
  if (isLong) return everyScreen;
  return turn++ % 2 === 0 ? [unjudged[1]!, wide] : [unjudged[0]!, narrow];
}

/** Both widths, without axe. */
export const unjudged: Screen[] = [wide, narrow].map((screen) => ({ ...screen, rules: [] }));

/**
 * Selects the pages to check. The short form takes one page of each kind: the first path segment, the number of
 * segments, and whether it has a query. The long form takes all pages.
 */
export function oneOfAKind(paths: string[]): string[] {
  const kindOf = (route: string) => {
    const [path, query] = route.split('?') as [string, string?];
    return [path.split('/')[1], path.split('/').length, query === undefined].join();
  };
  return isLong ? paths : [...new Map(paths.map((route) => [kindOf(route), route])).values()];
}

/** Script that returns elements that extend beyond the right edge and are not in a scroll container. */
const TOO_WIDE = `[...document.querySelectorAll('main *')]
  .filter((one) => one.getBoundingClientRect().right > innerWidth && !one.closest('.scroll'))
  .slice(0, 3).map((one) => one.outerHTML.slice(0, 150)).join(' ')`;

/**
 * Returns the problems of the current page: axe findings, content wider than the screen, and effects of hostile data.
 */
export async function troublesOf(page: Page, screens = screensOfTurn()): Promise<string[]> {
  const results: string[] = [];
  for (const { width, colorScheme, rules } of screens) {
    const where = `${width} px, ${colorScheme}`;
    await page.setViewportSize({ width, height: 800 });
    // Without animations, because axe would measure colors in the middle of a transition.
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    const wide = Number(await page.evaluate('document.documentElement.scrollWidth'));
    if (wide > width) results.push(`${where}: ${wide} wide by ${await page.evaluate(TOO_WIDE)}`);
    if (rules?.length === 0) continue;
    results.push(...(await findings(page, rules)).map((one) => `${where}: ${one}`));
  }
  if ((await page.title()) === 'run') results.push('a script of the data has run');
  if ((await page.locator('img').count()) > 0) results.push('an image of the data is there');
  return results;
}

/** Same as `troublesOf` without axe. Another role's page only differs in text. */
export async function looksOf(page: Page): Promise<string[]> {
  const [wide, broad, title, images] = await page.evaluate<[number, string, string, number]>(
    `[document.documentElement.scrollWidth - innerWidth, ${TOO_WIDE}, document.title, document.images.length]`,
  );
  return [
    ...(wide > 0 ? [`${wide} px too wide by ${broad}`] : []),
    ...(title === 'run' ? ['a script of the data has run'] : []),
    ...(images > 0 ? ['an image of the data is there'] : []),
  ];
}

/** Opens a console in which any name, value and reason may be hostile, with the paths of each kind of page. */
export async function openHostileConsole() {
  const scene = await openConsole();
  const { shop, user, query, letterIn, createUser, installation } = scene;
  const { database } = installation;
  await query(
    `update profiles set custom_attributes = $2, first_name = $3, last_name = 'مريم الزهراء' where id = $1`,
    toProfileId(user),
    {
      ...{ [script]: script, long: 'x'.repeat(100_000), nested: { list: [{ deep: script }] } },
      '\u202eturned': 'in its place',
    },
    script,
  );
  for (let n = 0; n < 60; n++)
    await query(
      `insert into events values ($1, $2, $3, $4, now(), 'app', $5)`,
      ...[shop, uuidv7(), toProfileId(user), `viewed ${script}`, { colour: script }],
    );
  await createUser(shop, script);
  const [hall, team, set, group, center, run] = [uuidv7(), uuidv7(), uuidv7(), uuidv7(), uuidv7(), uuidv7()];
  await query(
    'insert into workspaces (id, name, company_id) values ($1, $2, $3)',
    ...[hall, hostile, DEFAULT_COMPANY],
  );
  await query('insert into teams (id, workspace_id, name) values ($1, $2, $3)', team, shop, script);
  await query(
    "insert into permission_sets (id, company_id, name, permissions) values ($1, $2, $3, '{view_user_profile}')",
    ...[set, DEFAULT_COMPANY, script],
  );
  await query(
    "insert into subscription_groups (id, workspace_id, name, channel) values ($1, $2, $3, 'email')",
    ...[group, hall, hostile],
  );
  await query(
    `insert into preference_centers (workspace_id, id, name, title, page_html, confirmation_html, state)
     values ($1, $2, $3, $3, $3, $3, 'active')`,
    ...[hall, center, hostile],
  );
  const integration = await createIntegration(database.pool as never, hall, { name: hostile });
  await query(
    `insert into sync_jobs (id, integration_id, asked_by, status, finished_at, rows_read, rows_failed, message)
     values ($1, $2, 'operator', 'partial', now(), 2, 1, $3)`,
    ...[run, integration, hostile],
  );
  await query(
    'insert into sync_row_errors (job_id, number, reason, identifier, payload, workspace_id) values ($1, 2, $2, $2, $2, $3)',
    ...[run, hostile, hall],
  );
  const segment = uuidv7();
  await query(
    'insert into segments (id, workspace_id, name, purpose, definition) values ($1, $2, $3, $3, $4)',
    ...[segment, hall, hostile, { all: [{ custom_attribute: script, equals: hostile }] }],
  );
  const { key } = await createApiKey(database, tester, {
    ...{ workspaceId: hall, name: hostile, permissions: ['users.track'], ipAllowlist: [] },
  });
  const member = toServiceId(await createUser(hall, hostile, 'member@gmail.com'));
  await query(
    "insert into subscription_states values ($1, 'email', 'member@gmail.com', $2, 'subscribed', now())",
    ...[hall, group],
  );
  const appGroups = [
    { workspace: shop, permissions: [], permissionSet: set, teams: [{ team, permissions: ['admin'] }] },
  ];
  const { id: person } = await scene.people.arrive([], { appGroups });
  await query('update accounts set given_name = $2 where id = $1', person, script);
  await query('insert into usage (workspace_id, day, lane, events) values ($1, now(), 0, 5)', shop);
  await scene.recordPast(script);
  const request = uuidv7();
  const deadLetter = await letterIn(shop, {
    ...{ reason: script, identifiers: [{ external_id: 'user-1' }], requestId: uuidv7() },
  });
  await letterIn(hall, { reason: hostile, requestId: request });
  const deadLetters = `/dead-letters?workspace=${hall}`;
  const [, ofGroup] = /href="[^"]*(group=[^"&]+)/.exec(
    await (await scene.operator.get(deadLetters, { accept: 'text/html' })).text(),
  )!;
  const screens = 'screen=desktop&template=confirmation';
  const routes = [
    ...['/', '/?range=week', '/history', '/users', '/users?q=user-1', '/users?q=nobody'],
    ...[`/users/${user}`, `/users/${user}/delete`, `/users/${member}`],
    ...['/requests', '/requests?id=none', `/requests/${uuidv7()}`, `/requests/${request}`],
    ...['/dead-letters', '/dead-letters?workspace=school', '/dead-letters?state=discarded'],
    ...[`/dead-letters/${deadLetter}`, `${deadLetters}&${ofGroup}`],
    ...[
      '/refused-objects',
      '/refused-objects?workspace=school',
      (await scene.refusedIn(hall, { field: hostile })).path,
    ],
    '/imports',
    ...['/syncs', '/syncs?workspace=school', `/syncs/${scene.integration}`, `/syncs/${integration}`],
    ...[`/syncs/${scene.integration}/runs/${scene.run}`, `/syncs/${integration}/runs/${run}`],
    ...['/groups?workspace=school', '/groups?workspace=shop&user=user-1', `/groups?workspace=${hall}`],
    ...['/streams', '/streams?workspace=school', '/exports', '/exports?workspace=school'],
    ...['/segments?workspace=school', `/segments?workspace=${hall}`, `/segments/${scene.segment}`],
    ...[`/segments/${segment}`, '/dead-letters?state=discarded&kind=events'],
    ...['/preference-centers?workspace=school', `/preference-centers?workspace=${hall}`],
    ...[`/preference-centers/${scene.center}`, `/preference-centers/${center}`],
    `/preference-centers/${scene.center}?user=user-1&${screens}`,
    ...['/accounts', '/accounts?email=nobody', `/accounts/${person}`, '/teams', `/teams/${team}`],
    ...[`/permission-sets/${set}`, '/workspaces', `/workspaces/${scene.shop}`, `/workspaces/${hall}`],
    ...[`/limits?workspace=${hall}`, `/limits/users.track?workspace=${hall}`],
    ...['/keys', '/keys?workspace=school', `/keys/${scene.key}`, `/keys/${key.id}`],
    ...['/audit', '/audit?action=users.block', '/sessions', '/sessions?of=all'],
    ...['/search', '/search?q=user-1', '/nowhere', '/sign-out'],
  ];
  return {
    ...scene,
    hall,
    deadLetter,
    lettersOfHall: `${deadLetters}&${ofGroup}`,
    routes,
  };
}

export type HostileConsole = Awaited<ReturnType<typeof openHostileConsole>>;

import type { BrowserContext } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newInvitation } from '../../src/store/credentials.ts';
import { createAccount } from '../setup/access.ts';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { account, commit, createInstallation, failedEvent, type Installation, read } from './installation.ts';

describe('the dashboard in a browser', () => {
  let installation: Installation;
  let browser: BrowserContext;
  beforeAll(async () => {
    installation = await createInstallation('postgres');
    browser = await openBrowser();
  }, 300_000);
  afterAll(async () => {
    await browser?.close();
    await installation.stop();
  });

  test('one signs in, sees the lanes and a dead letter with its reason, retries it and signs out', async () => {
    const { database } = installation;
    const board = await installation.startBoard();
    const row = failedEvent({ reason: 'price does not fit' });
    const [id] = (await commit(database, row)) as [string];
    installation.startWorker();
    const page = await browser.newPage();
    const answeredBy = new Set<string>();
    page.on('response', (response) => answeredBy.add(new URL(response.url()).origin));

    await page.goto(board.url);
    expect(page.url()).toBe(`${board.url}/sign-in`);
    await page.getByLabel('Email address or user').fill(account.user);
    await page.getByLabel('Password').fill('guess');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').getByText('Wrong user or password.').waitFor();
    expect(await page.getByLabel('Email address or user').inputValue()).toBe(account.user);
    await page.getByLabel('Password').fill(account.password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    for (const lane of [0, 1, 2, 3]) await page.getByText(`Lane ${lane}`).waitFor();

    await page.getByRole('link', { name: 'dead-letters' }).click();
    await page.getByRole('link', { name: /^failed/i }).click();
    await page.getByText(row.reason).waitFor();
    await page.getByRole('tab', { name: 'Data' }).click();
    await page.getByText(row.requestId).waitFor();
    await page.locator('button:has(.lucide-refresh-cw)').last().click();
    await page.getByRole('button', { name: 'Confirm' }).click();
    await waitUntil(async () => (await installation.envelopes()).length > 0, { what: 'the replay' });
    expect((await read(database, id)).state).toBe('replaying');
    expect(await installation.envelopes()).toMatchObject([{ envelope: { objects: [{ id }], replay: true } }]);

    await page.locator('header button[aria-haspopup=menu]').click();
    await page.getByRole('menuitem', { name: 'Sign out' }).click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(`${board.url}/sign-in`);
    await page.goto(board.url);
    expect(page.url()).toBe(`${board.url}/sign-in`);
    expect([...answeredBy]).toEqual([board.url]);
  });

  test('what clients sent is shown as text: no script of it runs, and nothing is loaded', async () => {
    const { database } = installation;
    const board = await installation.startBoard();
    const script =
      '<img src="/healthz?x" onerror="document.title=\'run\'"><script>document.title="run"</script>';
    const row = failedEvent({ reason: `hostile ${script}`, requestId: `request ${script}` });
    row.object.name = script;
    row.object.properties = { [script]: script, link: 'javascript:document.title="run"' };
    await commit(database, row);
    installation.startWorker();
    const page = await browser.newPage();
    const asked: string[] = [];
    page.on('request', (request) => asked.push(request.url()));
    await page.goto(board.url);
    await page.getByLabel('Email address or user').fill(account.user);
    await page.getByLabel('Password').fill(account.password);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('link', { name: 'dead-letters' }).click();
    await page.getByRole('link', { name: /^failed/i }).click();
    await page.getByText('hostile <img').first().waitFor();
    await page.getByRole('tab', { name: 'Data' }).first().click();
    await page.getByText('request <img').first().waitFor();
    expect(await page.title()).not.toBe('run');
    expect(await page.locator('img[onerror]').count()).toBe(0);
    expect(asked.filter((url) => url.includes('healthz?x'))).toEqual([]);
  });

  test('an invited person sets a password, signs in with it, and has nothing to retry', async () => {
    const { database, startBoard } = installation;
    const board = await startBoard();
    const company = '00000000-0000-7000-8000-000000000001';
    const id = await createAccount(database.pool as never, company, 'ada@example.com');
    const { secret, hash, expiresAt } = newInvitation(new Date());
    await database.prisma.account.update({
      where: { id },
      data: { invitationHash: hash, invitationExpiresAt: expiresAt },
    });
    await commit(database, failedEvent({ reason: 'price does not fit' }));
    const page = await browser.newPage();

    await page.goto(`${board.url}/invitation?token=${secret}`);
    expect(await page.getByLabel('Email address').inputValue()).toBe('ada@example.com');
    await page.getByText('12 characters or more').waitFor();
    await page.getByLabel('New password').fill('short');
    await page.getByLabel('Once more').fill('short');
    await page.getByRole('button', { name: 'Set the password' }).click();
    await page.getByRole('alert').getByText('12 to 128 characters').waitFor();
    await page.getByLabel('New password').fill('seven wooden ladders');
    await page.getByLabel('Once more').fill('seven wooden ladders');
    await page.getByRole('button', { name: 'Set the password' }).click();
    await page.getByRole('status').getByText('Your password is set.').waitFor();
    await page.getByLabel('Email address or user').fill('ada@example.com');
    await page.getByLabel('Password').fill('seven wooden ladders');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Lane 0').waitFor();
    await page.getByText('Penstock (read only)').waitFor();
    await page.getByRole('link', { name: 'dead-letters' }).click();
    await page.getByRole('link', { name: /^failed/i }).click();
    await page.getByText('price does not fit').first().waitFor();
    expect(await page.locator('button:has(.lucide-refresh-cw)').count()).toBe(0);

    await page.goto(`${board.url}/sign-out`);
    await page.getByText('signed in as ada@example.com, and may look but change nothing').waitFor();
    await database.prisma.account.delete({ where: { id } });
    await page.goto(board.url);
    expect(page.url()).toBe(`${board.url}/sign-in`);
  });
});

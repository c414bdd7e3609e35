import express, { type Router } from 'express';
import type { Log } from '../log.ts';
import type { Accounts } from './accounts.ts';
import { readNamed } from './form.ts';
import { invitationEndedPage, invitationPage } from './pages.ts';
import { PASSWORD_RULE } from './passwords.ts';

/** The form to sign in, with a word that the password is set. */
export const AFTER_INVITATION = '/sign-in?password=set';

/** Where the link of an invitation leads: one sets a password there, and signs in with it. */
export function createInvitation(accounts: Accounts, log: Log): Router {
  const router = express.Router();
  const readForm = express.urlencoded({ extended: false, limit: 8192 });

  router.get('/invitation', async (request, response) => {
    const { token } = readNamed(request.query, 'token');
    response.set('Cache-Control', 'no-store');
    const email = await accounts.invited(token);
    if (email === undefined) response.status(410).send(invitationEndedPage());
    else response.send(invitationPage({ token, email, rule: PASSWORD_RULE }));
  });

  router.post('/invitation', readForm, async (request, response) => {
    const { token, password, again } = readNamed(request.body, 'token', 'password', 'again');
    const email = await accounts.invited(token);
    if (email === undefined) {
      response.status(410).send(invitationEndedPage());
      return;
    }
    const outcome =
      password === again ? await accounts.accept(token, password) : { problem: 'The two are not the same.' };
    if (outcome === 'ended') response.status(410).send(invitationEndedPage());
    else if (outcome === 'done') {
      log.info('an invitation to the dashboard was accepted');
      response.redirect(303, AFTER_INVITATION);
    } else response.status(400).send(invitationPage({ token, email, rule: PASSWORD_RULE }, outcome.problem));
  });

  return router;
}

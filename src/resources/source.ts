import { Refusal } from './refusal.ts';

/** A definition is shown as it is: a name or a password in it would be too. */
export function requireEndpoint(endpoint: string): void {
  const { protocol, username, password } = URL.canParse(endpoint)
    ? new URL(endpoint)
    : { protocol: '', username: '', password: '' };
  if (!/^https?:$/.test(protocol) || username !== '' || password !== '')
    throw new Refusal(
      '--endpoint must be a URL that starts with http:// or https://, without user and password',
      'endpoint',
    );
}

import { Refusal } from './refusal.ts';

/** Checks an endpoint URL. It must not contain credentials, because definitions are shown unmasked. */
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

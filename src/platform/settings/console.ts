import { port, text, visibleAscii } from './define.ts';

/** Settings of the console and of the ways to sign in to it. */
export const consoleSettings = {
  BOARD_HOST: {
    ...text({
      description:
        'The address that the console listens on. Never make it reachable from the internet without a proxy that limits access.',
      default: '127.0.0.1',
      example: '0.0.0.0',
      readBy: ['board', 'cli', 'start'],
    }),
    unit: 'address',
  },
  BOARD_PORT: port({
    description: 'The port that the console listens on.',
    default: 3001,
    example: '8081',
    readBy: ['board', 'cli', 'start'],
  }),
  BOARD_URL: text({
    description:
      'The address at which operators reach the console. It is used in invitation links, and as the address to which OIDC_ISSUER returns users. Empty: links use the address of the request, or BOARD_HOST and BOARD_PORT.',
    example: 'https://console.example.com',
    readBy: ['board', 'cli'],
    pattern: '^(https?://[^\\s?#;,\'"<>/@\\\\]+/?)?$',
    rule: 'must start with http:// or https:// and name a host, optionally a port, and no path',
  }),
  BOARD_USER: text({
    description: 'The user name of the built-in administrator of the console.',
    default: 'admin',
    example: 'operator',
    readBy: ['board', 'start'],
  }),
  BOARD_PASSWORD: text({
    description:
      'The password of BOARD_USER. Empty: a random password is generated at each start and logged once.',
    example: 'a-long-random-password',
    readBy: ['board', 'start'],
  }),
  OIDC_ISSUER: text({
    description:
      'The issuer identifier of an OpenID Connect provider. Accounts of OIDC_COMPANY can then sign in through it, in addition to passwords. Needs OIDC_CLIENT_ID and BOARD_URL. Empty: only passwords.',
    example: 'https://id.example.com/tenant',
    readBy: ['board'],
    // Tokens and the client secret must not cross a network unencrypted.
    pattern:
      '^(https://[^\\s?#@]+|http://(localhost|127\\.0\\.0\\.1|\\[::1\\])(:[0-9]{1,5})?(/[^\\s?#@]*)?)?$',
    rule: 'must start with https://, or with http:// on this machine, and have neither a query nor a user',
  }),
  OIDC_CLIENT_ID: text({
    description: 'The client id of the console at the provider.',
    example: 'penstock-console',
    readBy: ['board'],
  }),
  OIDC_CLIENT_SECRET: text({
    description:
      'The client secret of the console. Empty: the console is a public client and uses only PKCE.',
    example: 'the-secret-of-the-client',
    readBy: ['board'],
    pattern: visibleAscii(1, 1000).pattern,
    rule: 'must be at most 1,000 visible ASCII characters',
  }),
  OIDC_ACCOUNT_CLAIM: text({
    description:
      'The claim that must equal the userName of a SCIM account. For `email`, the provider must report the address as verified. Choose another claim only if users cannot change its value themselves.',
    default: 'email',
    example: 'preferred_username',
    readBy: ['board'],
    pattern: '^[A-Za-z0-9_.:/-]{1,100}$',
    rule: 'must be the name of a claim, for example email or preferred_username',
  }),
  OIDC_COMPANY: text({
    description:
      'The name or id of the company whose accounts can sign in through the provider. Accounts of other companies cannot.',
    default: 'default',
    example: 'Example Inc.',
    readBy: ['board'],
  }),
} as const;

/** Settings of the dashboard: where it is, who operates it, and who else tells it who somebody is. */
export const consoleSettings = {
  BOARD_HOST: {
    type: 'string',
    default: '127.0.0.1',
    unit: 'address',
    description: 'Address that the dashboard listens on; never open it to the world.',
  },
  BOARD_PORT: {
    type: 'integer',
    default: 3001,
    minimum: 0,
    maximum: 65_535,
    unit: 'port',
    description: 'Port of the dashboard.',
  },
  BOARD_URL: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Address under which people reach the dashboard, as https://console.example.com: for links of invitations, and for where OIDC_ISSUER sends people back to; empty: for links that of the page which asks, or BOARD_HOST and BOARD_PORT.',
    pattern: '^(https?://[^\\s?#;,\'"<>/@\\\\]+/?)?$',
    rule: 'must start with http:// or https:// and name a host, perhaps a port, and no path',
  },
  BOARD_USER: { type: 'string', default: 'admin', unit: '', description: 'User name for the dashboard.' },
  BOARD_PASSWORD: {
    type: 'string',
    default: '',
    unit: '',
    description: 'Password for the dashboard; empty: a random one, shown once in the log at start.',
  },
  OIDC_ISSUER: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'OpenID Connect: the provider by which people of OIDC_COMPANY sign in to the dashboard beside passwords, by its issuer identifier. Needs OIDC_CLIENT_ID and BOARD_URL; empty: passwords alone.',
    // Tokens and the client's secret cross no network in clear.
    pattern:
      '^(https://[^\\s?#@]+|http://(localhost|127\\.0\\.0\\.1|\\[::1\\])(:[0-9]{1,5})?(/[^\\s?#@]*)?)?$',
    rule: 'must start with https://, or with http:// on this machine, and have neither a query nor a user',
  },
  OIDC_CLIENT_ID: {
    type: 'string',
    default: '',
    unit: '',
    description: 'By which name the provider knows the dashboard.',
  },
  OIDC_CLIENT_SECRET: {
    type: 'string',
    default: '',
    unit: '',
    description: 'What the dashboard proves itself by; empty: it is a public client, and PKCE alone holds.',
    pattern: '^([!-~]{1,1000})?$',
    rule: 'must be at most 1,000 visible ASCII characters',
  },
  OIDC_ACCOUNT_CLAIM: {
    type: 'string',
    default: 'email',
    unit: '',
    description:
      'Claim that has to be the userName of an account of SCIM. Of email the provider has to say that it is verified; name another one only where nobody can choose it for themselves.',
    pattern: '^[A-Za-z0-9_.:/-]{1,100}$',
    rule: 'must be the name of a claim, as email or preferred_username',
  },
  OIDC_COMPANY: {
    type: 'string',
    default: 'default',
    unit: '',
    description:
      'Name or id of the company for whose accounts the provider speaks: for those of others it says nothing.',
  },
} as const;

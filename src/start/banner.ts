export interface BannerFacts {
  /** Address of the API, with no slash at the end. */
  api: string;
  /** Address of the dashboard, with no slash at the end. */
  board: string;
  boardUser: string;
  boardPassword: string;
  /** Whether the password is a random one of this start: one that someone chose is not printed. */
  randomPassword: boolean;
  /** Only when it was made now, and at random. */
  apiKey: string | undefined;
  now: Date;
}

/** What a person wants to know and can paste, once everything runs. */
export function banner(facts: BannerFacts): string {
  const { api, board, boardUser, boardPassword, randomPassword, apiKey, now } = facts;
  const key = apiKey ?? '$PENSTOCK_API_KEY';
  const password = randomPassword ? boardPassword : '$BOARD_PASSWORD';
  const time = `${now.toISOString().slice(0, 19)}Z`;
  const track = {
    attributes: [{ external_id: 'ada', first_name: 'Ada', favourite_colour: 'teal' }],
    events: [{ external_id: 'ada', name: 'signed_up', time }],
  };
  const readBack = { external_ids: ['ada'] };
  return `
  Penstock is ready.

  API        ${api}   (documentation: ${api}/docs)
  Dashboard  ${board}   user ${boardUser}, ${randomPassword ? `password ${boardPassword} (until the next start)` : 'password as in BOARD_PASSWORD'}
${apiKey ? `  API key    ${apiKey}   (shown this once: keep it)\n` : ''}
  Track a user's attributes and an event, read the profile back, sign in to the dashboard:

${post(`${api}/users/track`, key, track)}

${post(`${api}/users/export/ids`, key, readBack)}

curl -sLb '' -H 'Origin: ${board}' --data-urlencode 'user=${boardUser}' --data-urlencode "password=${password}" ${board}/sign-in

`;
}

function post(url: string, key: string, body: object): string {
  const headers = `-H "Authorization: Bearer ${key}" -H 'Content-Type: application/json'`;
  return `curl -s ${url} ${headers} -d '${JSON.stringify(body)}'`;
}

/** The API key that a first start has made at random; every other start has none. */
export interface FirstKey {
  value: string | undefined;
  /** To be called by whoever shows it. */
  shown(): void;
}

/**
 * Sees to it that a key which cannot be had again is shown once: by the greeting, or, when this process ends
 * before its greeting, in its last line.
 */
export function firstKey(value: string | undefined): FirstKey {
  const show = () => {
    process.stdout.write(`API key of the workspace default, shown this once: ${value}\n`);
  };
  if (value) process.once('exit', show);
  return { value, shown: () => process.off('exit', show) };
}

import { createScene } from './scene.ts';

export interface Listed {
  id: string;
  userName: string;
}

const people = [
  ['ada@example.com', 'Ada', 'Lovelace', 'engineering'],
  ['ada.byron@example.com', 'Ada', 'Byron', 'finance'],
  ['grace@example.com', 'Grace', 'Hopper', 'engineering'],
  ['per_cent@example.com', 'Per%Cent', 'Under_score', 'pm'],
  ['percent@example.com', 'PerXCent', 'UnderXscore', 'pm'],
] as const;

/** Creates a company with five accounts, `ids` in the order of creation. */
export async function createListedPeople() {
  const scene = await createScene();
  const { provider } = scene;
  const ids: string[] = [];
  for (const [userName, givenName, familyName, department] of people) {
    const { id } = await provider.create({ userName, name: { givenName, familyName }, department });
    ids.push(id);
  }
  return {
    ...scene,
    ids,
    list: (query: Record<string, string>) => provider.call('GET', `/Users?${new URLSearchParams(query)}`),
  };
}

/** Returns the part before the @ of each user name. */
export function namesOf(body: { Resources: Listed[] }): (string | undefined)[] {
  return body.Resources.map(({ userName }) => userName.split('@')[0]);
}

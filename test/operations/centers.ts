import { expect } from 'vitest';
import type { Scene } from '../preferences/scene.ts';
import type { ApiAnswer } from '../setup/api.ts';

export const base = '/preference_center/v1';
export const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
export const htmls = {
  preference_center_page_html: '<p>page</p>',
  confirmation_page_html: '<p>saved</p>',
};
/** The id of no preference center. */
export const unknown = '019c13ec-a2e2-7000-8000-00000000dead';

/** What the operations of preference centers are asked in a scene, which is there when the first test begins. */
export function centersOf(scene: () => Scene) {
  const create = (body: object) => scene().api('POST', base, body);
  return {
    create,
    view: (id: string) => scene().api('GET', `${base}/${id}`),
    /** Of one that is accepted: its id. */
    async created(body: object): Promise<string> {
      const { status, body: reply } = await create({ ...htmls, ...body });
      expect({ status, reply }).toMatchObject({ status: 201 });
      return reply.preference_center_api_id;
    },
  };
}

export function expectRefusal({ status, body }: ApiAnswer, message: string | RegExp, expected = 400): void {
  expect({ status, body }).toEqual({
    status: expected,
    body: { message: typeof message === 'string' ? message : expect.stringMatching(message) },
  });
}

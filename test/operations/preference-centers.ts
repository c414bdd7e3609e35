import { afterAll, beforeAll, expect } from 'vitest';
import { type ErrorName, errors, explain } from '../../src/errors.ts';
import type { Backend } from '../guarantees/fleet.ts';
import { createScene, type Scene } from '../preferences/scene.ts';
import type { ApiAnswer } from '../setup/api.ts';

export const base = '/preference_center/v1';
export const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
export const htmls = { preference_center_page_html: '<p>page</p>', confirmation_page_html: '<p>saved</p>' };
/** An unused id of a preference center. */
export const unknown = '019c13ec-a2e2-7000-8000-00000000dead';

/** Creates a scene for the tests of the current `describe`, and their common requests. */
export function useCenters(backend: Backend) {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene(backend);
  });
  afterAll(() => scene?.stop());

  const create = (body: object) => scene.api('POST', base, body);
  return {
    get scene() {
      return scene;
    },
    api: (...given: Parameters<Scene['api']>) => scene.api(...given),
    create,
    view: (id: string) => scene.api('GET', `${base}/${id}`),

    /** Creates a preference center. @returns its id */
    async created(body: object): Promise<string> {
      const { status, body: reply } = await create({ ...htmls, ...body });
      expect({ status, reply }).toMatchObject({ status: 201 });
      return reply.preference_center_api_id;
    },
  };
}

/** Expects an error of the catalogue. @param message the text of the rule, if the entry has no text */
export function expectRefusal(
  { status, body }: ApiAnswer,
  message: string | RegExp,
  entry: ErrorName = 'invalidRequest',
): void {
  const { code, detail } = explain(entry)!;
  expect({ status, body }).toEqual({
    status: errors[entry].status,
    body: {
      message: typeof message === 'string' ? message : expect.stringMatching(message),
      code,
      detail: entry === 'rateLimited' ? expect.stringContaining('has used its limit of') : detail,
    },
  });
}

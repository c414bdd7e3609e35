import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { allOperations } from '../../src/operations/index.ts';
import type { Operation } from '../../src/operations/operation.ts';
import { newApiKey } from '../../src/store/credentials.ts';
import { type Backend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { createAccess } from '../setup/access.ts';
import { type ApiAnswer, type ApiRequest, send } from '../setup/api.ts';
import { expectCommonHeaders } from '../setup/common-headers.ts';
import { liftLimits } from '../setup/examples.ts';

/** The contract holds for every operation, so a new operation is tested without a change here. */
export const operations = allOperations('service_id');

/**
 * Starts processes for the tests of a `describe`, and adds a last test that their log contains no sent data.
 */
export function contractScene(backend: Backend, { edges = 1 } = {}) {
  let fleet: Fleet;
  let access: ReturnType<typeof createAccess>;
  /** Every key that was sent, valid or not. */
  const sent = new Set<string>();
  beforeAll(async () => {
    fleet = await startFleet(backend, {
      edges,
      // Some answers include the result of the workers.
      workers: 1,
      env: { LOG_LEVEL: 'info', KEY_CACHE_MS: '300' },
    });
    await liftLimits(fleet.pool, fleet.workspace.id);
    access = createAccess(fleet.pool);
  });
  afterAll(() => fleet.stop());

  const port = () => fleet.edges[0]!.port;

  /** Sends a request, and checks the properties that every answer has, whatever its status. */
  async function call(request: ApiRequest, to = port()): Promise<ApiAnswer> {
    if (request.key !== undefined) sent.add(request.key);
    const answer = await send(to, request);
    expectCommonHeaders(answer.headers, /^\d*$/);
    if (answer.status !== 204)
      expect(answer.headers.get('content-type')).toMatch(/^application\/(scim\+)?json/);
    return answer;
  }

  return {
    fleet: () => fleet,
    access: () => access,
    port,

    call,

    /** Sends a request that the operation accepts, with a change, and with valid credentials. */
    async accept(
      operation: Operation,
      change: ApiRequest = {},
      to = port(),
      whose = fleet.workspace,
    ): Promise<ApiAnswer> {
      const admitted = await access.admit(operation, whose);
      const headers = { ...admitted.headers, ...change.headers };
      const example = await access.example(operation, whose);
      return call({ ...example, ...admitted, ...change, headers }, to);
    },

    /** Creates a key of the fleet's workspace. */
    async makeKey(allowed: readonly string[], allowlist: string[] = []): Promise<string> {
      const { secret, identifier, hash } = newApiKey();
      await fleet.pool.query(
        `insert into api_keys (id, workspace_id, name, identifier, key_hash, permissions, ip_allowlist)
         values ($1, $2, 'test', $3, $4, $5, $6)`,
        [uuidv7(), fleet.workspace.id, identifier, hash, allowed, allowlist],
      );
      return secret;
    },

    /**
     * Adds the last test of a `describe`, about all requests of the earlier ones.
     * @param least minimum number of lines that the first web process has logged
     */
    staysPrivate(least = operations.length * 4) {
      test('the log contains no key and no personal data', () => {
        const lines = fleet.edges[0]!.log.map((line) => JSON.stringify(line));
        expect(lines.length).toBeGreaterThan(least);
        expect(sent.size).toBeGreaterThan(1);
        const all = lines.join('\n');
        for (const key of sent) expect(all.includes(key), `the log holds the key ${key}`).toBe(false);
        expect(all).not.toContain('ada@example.com');
      });
    },
  };
}

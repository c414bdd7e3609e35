import { expect, test } from 'vitest';
import { record } from '../../src/edge/reply.ts';

/** The fields of a request's log line. */
function lineOf(requester: Parameters<typeof record>[0]['requester'], status = 201) {
  const lines: Record<string, unknown>[] = [];
  const nothing = () => {};
  const log = { info: (fields: Record<string, unknown>) => lines.push(fields) };
  const metrics = {
    ...{ requests: { inc: nothing }, duration: { observe: nothing }, accepted: { inc: nothing } },
    ...{ rejected: { inc: nothing }, noteAccepted: nothing, noteRefused: nothing },
  };
  record(
    {
      ...{ operation: { id: 'users.track', bucket: 'users.track' }, request: { headers: {} } },
      ...{ requestId: 'request', requester, milliseconds: 1 },
      answer: { reply: { status, body: undefined }, accepted: 1, rejected: [] },
    } as never,
    { log, strangers: log, metrics } as never,
  );
  return lines[0]!;
}

test('the log line of each request has the id of its key, so that a noisy key can be found', () => {
  expect(lineOf({ keyId: 'key', workspaceId: 'workspace' })).toMatchObject({
    ...{ key_id: 'key', workspace_id: 'workspace', request_id: 'request' },
  });
  // The line of a request that the rate limit refuses has it, too.
  expect(lineOf({ keyId: 'key', workspaceId: 'workspace' }, 429)).toMatchObject({
    key_id: 'key',
    status: 429,
  });
});

test('the log line of an unauthenticated request has no key id', () => {
  const log = lineOf({}, 403);
  expect(Object.keys(log)).not.toContain('key_id');
});

import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AcceptedObject, AcceptedRequest } from '../../src/jobs/envelope.ts';
import type { Caller } from '../../src/operations/operation.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import { newId } from '../../src/platform/ids.ts';
import { noteRequest, presentTrace, traceRequests, tracing } from '../../src/platform/tracing.ts';
import type { Json } from '../../src/profile/json.ts';
import { type Packable, pack } from '../../src/queue/pack.ts';
import { traceFlush } from '../../src/queue/spans.ts';
import { encodeEnvelope } from '../../src/queue/wire.ts';
import { createRandom } from '../load/random.ts';
import { goodObject, trafficKinds, USER_MARK } from '../load/traffic.ts';

/** Objects of each kind in one request, as under full load. */
export const EACH = 25;

const USERS = 10_000;

const random = createRandom(7);
const track = usersTrack('service_id');

/** Returns the body of a request. */
export function bodyOf(): string {
  const objects = (kind: (typeof trafficKinds)[number]) =>
    Array.from({ length: EACH }, () => goodObject(kind, random, Date.now()));
  const body = JSON.stringify(Object.fromEntries(trafficKinds.map((kind) => [kind, objects(kind)])));
  return body.replaceAll(
    USER_MARK,
    () => `load-${String(Math.floor(random() * USERS)).padStart(USER_MARK.length - 'load-'.length, '0')}`,
  );
}

/** Runs the code of web between reading bodies and adding their envelope to a lane. */
export function accept(workspaceId: string, bodies: string[]): string[] {
  const batch = bodies.map((body) => asRequest(() => acceptOne(workspaceId, body)));
  const entries = pack(batch, 1, Number.POSITIVE_INFINITY);
  const texts: string[] = [];
  const add = async () => {
    for (const { envelope } of entries) texts.push(JSON.stringify(encodeEnvelope(envelope)));
  };
  void (tracing ? traceFlush(entries, add) : add());
  return texts;
}

/** Runs work in the span of a request if tracing is on. */
function asRequest<Result>(work: () => Result): Result {
  if (!tracing) return work();
  let result: Result | undefined;
  const response = Object.assign(new EventEmitter(), { statusCode: 201, headersSent: true });
  const handle = traceRequests(() => {
    result = work();
  });
  handle(
    { method: 'POST', url: track.path, headers: {} } as IncomingMessage,
    response as unknown as ServerResponse,
  );
  response.emit('close');
  return result!;
}

function acceptOne(workspaceId: string, body: string): Packable {
  const request: AcceptedRequest = {
    request_id: newId(),
    workspace_id: workspaceId,
    accepted_at: new Date().toISOString(),
    ...presentTrace(),
  };
  const caller: Caller = {
    workspaceId,
    requestId: request.request_id,
    now: Date.now(),
    hasGroup: () => true,
    channelOf: () => 'email',
    isBlocked: () => false,
  };
  const { objects } = track.plan(caller, JSON.parse(body) as Record<string, Json>);
  const span = tracing?.active();
  if (span)
    noteRequest(span, track, {
      'penstock.request.id': request.request_id,
      'penstock.workspace.id': workspaceId,
      'penstock.objects.accepted': objects.length,
      'penstock.objects.rejected': 0,
    });
  return { request, objects: objects as AcceptedObject[], bytes: body.length };
}

import type { ApiError } from '../../src/errors.ts';
import type {
  AcceptedAttributes,
  AcceptedEvent,
  AcceptedObject,
  AcceptedPurchase,
} from '../../src/jobs/envelope.ts';
import type { Caller } from '../../src/operations/operation.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import { callerOf } from './caller.ts';
import { refusedRequest } from './refused-request.ts';

/** Arrival time of the requests in these tests. */
export const now = Date.UTC(2026, 0, 31, 12);

/** A time before `now`. */
export const time = '2026-01-30T08:00:00.000Z';

export type Objects = Record<string, Json>;

/** Plans a body of /users/track. @returns status, answer and accepted objects */
export function planner(serviceIdField = 'service_id', change: Partial<Caller> = {}) {
  const operation = usersTrack(serviceIdField);
  const caller = callerOf('018f0000-0000-7000-8000-000000000000', { now, ...change });

  function plan(body: Objects) {
    try {
      const { objects, rejected, reply } = operation.plan(caller, body);
      return { status: reply.status, body: reply.body as unknown as Answer, objects, rejected };
    } catch (error) {
      const refused = refusedRequest(error as ApiError, body);
      return {
        status: refused.status,
        body: operation.errorBody!(refused) as unknown as Answer,
        objects: [],
        rejected: [],
      };
    }
  }

  /** Returns the planned object if it is accepted, or the text of its rejection. */
  function one<T extends AcceptedObject>(
    kind: 'attributes' | 'events' | 'purchases',
    object: Json,
  ): T | string {
    const { objects, body } = plan({ [kind]: [object] });
    return (objects[0] as T) ?? body.errors![0]!.type;
  }

  return {
    plan,
    attributes: (object: Json) => one<AcceptedAttributes>('attributes', object),
    event: (object: Objects) =>
      one<AcceptedEvent>('events', { external_id: 'ada', name: 'seen', time, ...object }),
    purchase: (object: Objects) =>
      one<AcceptedPurchase>('purchases', {
        external_id: 'ada',
        product_id: 'book',
        currency: 'EUR',
        price: 1,
        time,
        ...object,
      }),
  };
}

interface Answer {
  message: string;
  errors?: { type: string; input_array?: string; index?: number }[];
  warnings?: { type: string; input_array: string; index: number }[];
  attributes_processed?: number;
  events_processed?: number;
  purchases_processed?: number;
}

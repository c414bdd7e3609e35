import { inject } from 'vitest';
import { parseQuery } from '../../src/edge/request.ts';
import { ApiError, BadRequest } from '../../src/errors.ts';
import type { AcceptedEmailChange, AcceptedObject } from '../../src/jobs/envelope.ts';
import type { DirectOperation, QueuedOperation, Resources } from '../../src/operations/operation.ts';
import { subscriptionStatusGet } from '../../src/operations/subscription.status.get.ts';
import { subscriptionStatusSet } from '../../src/operations/subscription.status.set.ts';
import { subscriptionStatusSetV2 } from '../../src/operations/subscription.status.set.v2.ts';
import { newId } from '../../src/platform/ids.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { compile, describeError } from '../../src/schemas/compile.ts';
import type { Channel } from '../../src/store/subscription-states.ts';
import { createScene } from '../identity/scene.ts';
import { type Answer, callerOf } from '../operations/caller.ts';
import { refusedRequest } from '../operations/refused-request.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createGroup } from '../setup/workspace.ts';
import { applyObjects } from '../workers/apply-batch.ts';

type Body = Record<string, Json>;

/** Checks whether a session waits for a lock. On a distributed Postgres the waiting session is on a node. */
const waitingStatement = inject('citusTemplate')
  ? 'select from citus_lock_waits where waiting_gpid % 10000000000 = $1'
  : 'select from pg_locks where pid = $1 and not granted';

/**
 * Creates a store with a group of each channel and an archived one, and the endpoints on it without server
 * and queue.
 */
export async function createSubscriptionScene() {
  const scene = await createScene();
  const { pool, workspaceId } = scene;
  const groups = {
    news: await createGroup(pool, workspaceId, 'email', { name: 'news' }),
    offers: await createGroup(pool, workspaceId, 'email', { name: 'offers' }),
    texts: await createGroup(pool, workspaceId, 'sms', { name: 'texts' }),
    chat: await createGroup(pool, workspaceId, 'whatsapp', { name: 'chat' }),
    archived: await createGroup(pool, workspaceId, 'email', { name: 'archived', archived: true }),
  };
  const channels = new Map<string, Channel>([
    ...[groups.news, groups.offers, groups.archived].map((id) => [id, 'email'] as const),
    [groups.texts, 'sms'],
    [groups.chat, 'whatsapp'],
  ]);

  /** Calls a queued operation and applies its objects. @returns the answer; rejections are answers too */
  async function post(operation: QueuedOperation, body: Body, requestId = 'request'): Promise<Answer> {
    const caller = callerOf(workspaceId, {
      requestId,
      channelOf: (id) => channels.get(id),
      isBlocked: (id) => id === 'blocked',
    });
    return answered(operation, async () => {
      const { objects, reply } = operation.plan(caller, body);
      await scene.apply(objects, workspaceId, requestId);
      return reply as Answer;
    });
  }

  /** @param query as in a URL */
  async function get(operation: DirectOperation, query: string): Promise<Answer> {
    const check = compile(operation.query!);
    const parsed = parseQuery(query);
    return answered(operation, async () => {
      if (!check(parsed)) throw new BadRequest(describeError(check.errors![0]!));
      const input = { body: {}, query: parsed, params: {} };
      // These operations create no links and render no pages.
      const resources = { database: scene.database, serviceIdField: 'service_id' } as Resources;
      return (await operation.handle(callerOf(workspaceId), input, resources)) as Answer;
    });
  }

  return {
    ...scene,
    groups,
    post,
    get,
    set: (body: Body, requestId?: string) => post(subscriptionStatusSet(), body, requestId),
    setAll: (subscription_groups: Json, requestId?: string) =>
      post(subscriptionStatusSetV2(), { subscription_groups }, requestId),

    /** The answer's `status`. */
    async status(group: string, query: string): Promise<Record<string, string>> {
      const { body } = await get(subscriptionStatusGet(), `subscription_group_id=${group}&${query}`);
      return body.status ?? body;
    },

    /**
     * Applies an object of each of two lanes, each in a separate transaction: the second one begins, and
     * waits for a lock, before
     * the first one commits.
     */
    async inTwoLanes(
      first: { object: AcceptedObject; requestId?: string },
      second: { object: AcceptedObject; requestId?: string },
    ): Promise<void> {
      const [one, two] = [await pool.connect(), await pool.connect()];
      const apply = (tx: typeof one, { object, requestId = 'request' }: typeof first) =>
        applyObjects(tx, [{ workspaceId, requestId, lane: 0, ordinal: 0, object }], new Date().toISOString());
      await one.query('begin');
      await two.query('begin');
      const { pid } = (await two.query('select pg_backend_pid() as pid')).rows[0];
      await apply(one, first);
      const waiting = apply(two, second);
      const isWaiting = async () => (await scene.rows(waitingStatement, [pid])).length > 0;
      await waitUntil(isWaiting, { what: 'the second lane to wait for the first' });
      await one.query('commit');
      await waiting;
      await two.query('commit');
      one.release();
      two.release();
    },

    /**
     * Returns the changes of the states of an address or profile, oldest first: subscription, from, to,
     * request.
     */
    async history(subject: string): Promise<(string | null)[][]> {
      const rows = await scene.rows(
        `select coalesce(subscription_groups.name, subscription_history.subscription) as name, from_state, to_state, request_id
         from subscription_history
         left join subscription_groups on subscription_groups.id::text = subscription_history.subscription
         where subscription_history.workspace_id = $1 and subject = $2 order by subscription_history.id`,
        [workspaceId, subject],
      );
      return rows.map(({ name, from_state, to_state, request_id }) => [
        name,
        from_state,
        to_state,
        request_id,
      ]);
    },
  };
}

export type SubscriptionScene = Awaited<ReturnType<typeof createSubscriptionScene>>;

async function answered({ errorBody }: QueuedOperation | DirectOperation, act: () => Promise<Answer>) {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { status, message } = error;
    return { status, body: errorBody?.(refusedRequest(error)) ?? { message } } as Answer;
  }
}

const base = () => ({ id: newId(), index: 0 });

/** Returns the object that web creates for one target of a group. */
export function says(
  identifier: Identifier,
  subscription_group_id: string,
  subscription_state: 'subscribed' | 'unsubscribed',
): AcceptedObject {
  return { ...base(), kind: 'group_state', identifier, subscription_group_id, subscription_state };
}

export function email(
  address: string,
  change: Pick<AcceptedEmailChange, 'state' | 'hard_bounced' | 'marked_as_spam'>,
): AcceptedObject {
  return { ...base(), kind: 'email_change', email: address, ...change };
}

/** Returns valid phone numbers. */
export const phones = (index: number) => `+4420718${30000 + index}`;

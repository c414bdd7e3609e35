import { BadRequest, errors as rules } from '../errors.ts';
import type { AcceptedObject } from '../jobs/envelope.ts';
import { emailStatus } from '../operations/email.status.ts';
import type { Caller, Plan } from '../operations/operation.ts';
import { subscriptionStatusSetV2 } from '../operations/subscription.status.set.v2.ts';
import { createAccept } from '../operations/track/accept.ts';
import { usersAliasNew } from '../operations/users.alias.new.ts';
import type { LongStrings } from '../profile/attribute-rule.ts';
import { isGiven } from '../profile/identifier.ts';
import type { Json } from '../profile/json.ts';
import type { Pool } from '../store/database.ts';
import { readRules } from '../store/sync-lists.ts';
import type { Refusal, Values } from './reader.ts';
import type { Sent } from './vendor.ts';

/** What becomes of the objects of one row, and what was cut or left out of it; or why it is refused. */
export type Verdict = { objects: AcceptedObject[]; warnings?: readonly string[] } | Refusal;

/**
 * All of a row's objects, or none.
 * @param index the row's place in its file, as dead letters and answers name it
 */
export type Judge = (sent: readonly Sent[], index: number, caller: Caller) => Verdict;

type JudgeOne = (object: Values, index: number, caller: Caller) => Verdict;

export interface JudgeOptions {
  serviceIdField: string;
  longStrings: LongStrings;
  /** Nobody who is not there is made. */
  updateExistingOnly: boolean;
}

/**
 * Judges objects by the very code of /users/track, /users/alias/new, /v2/subscription/status/set and /email/status. The
 * validators are compiled here, once.
 */
export function createJudge({ serviceIdField, longStrings, updateExistingOnly }: JudgeOptions): Judge {
  const accept = createAccept(serviceIdField, longStrings);
  const states = subscriptionStatusSetV2();
  const addresses = emailStatus();
  const aliases = usersAliasNew();

  const tracked =
    (kind: 'attributes' | 'events' | 'purchases'): JudgeOne =>
    (object, index, caller) => {
      if (updateExistingOnly) object._update_existing_only = true;
      const verdict = accept[kind](object, index, caller);
      if ('error' in verdict) return refusalOf(verdict.error);
      const { object: accepted, warnings } = verdict;
      return { objects: [accepted], ...(warnings && { warnings }) };
    };

  function setState(object: Values, index: number, caller: Caller): Verdict {
    const { external_id, email, phone, email_subscribe, ...others } = object;
    const { user_alias, [serviceIdField]: serviceId, ...setting } = others;
    const isGroup = isGiven(setting.subscription_group_id);
    if (isGiven(email_subscribe) && !isGroup)
      return judgeByPlan(index, () =>
        addresses.plan(caller, { email: email ?? null, subscription_state: email_subscribe }),
      );
    const hasOther = isGiven(user_alias) || isGiven(serviceId);
    if (isGroup && hasOther && ![external_id, email, phone].some(isGiven)) {
      const name = { user_alias: user_alias ?? null, [serviceIdField]: serviceId ?? null };
      return judges.users({ ...name, subscription_groups: [setting] }, index, caller);
    }
    const listed = (field: string, value: Json | undefined) => isGiven(value) && { [field]: [value] };
    const element = {
      ...setting,
      ...(listed('external_ids', external_id) || listed('emails', email) || listed('phones', phone)),
    };
    return judgeByPlan(index, () => states.plan(caller, { subscription_groups: [element] }));
  }

  const judges: Record<Sent['type'], JudgeOne> = {
    users: tracked('attributes'),
    events: tracked('events'),
    purchases: tracked('purchases'),
    subscriptions: setState,
    aliases: (object, index, caller) =>
      judgeByPlan(index, () => aliases.plan(caller, { user_aliases: [object] })),
  };

  return function judge(sent, index, caller) {
    const [first, ...others] = sent;
    if (first && others.length === 0) return judges[first.type](first.object, index, caller);
    const objects: AcceptedObject[] = [];
    const warnings: string[] = [];
    for (const { type, object } of sent) {
      const verdict = judges[type](object, index, caller);
      if ('refused' in verdict) return verdict;
      objects.push(...verdict.objects);
      warnings.push(...(verdict.warnings ?? []));
    }
    return warnings.length > 0 ? { objects, warnings } : { objects };
  };
}

/** Judges one element as an operation does that refuses whole requests. */
function judgeByPlan(index: number, plan: () => Plan): Verdict {
  try {
    const { objects, rejected, reply } = plan();
    if (rejected === 0) return { objects: objects.map((one) => ({ ...one, index })) };
    const { errors } = reply.body as { errors?: { type: string }[] };
    return refusalOf(errors?.[0]?.type ?? 'it cannot be applied');
  } catch (error) {
    if (!(error instanceof BadRequest)) throw error;
    return refusalOf(error.errors?.[0]?.type ?? error.message);
  }
}

/** Rules that name their field in words of their own, which the specification gives. */
const FIELDS: Readonly<Record<string, string>> = {
  [rules.invalidSubscriptionGroup.message]: 'subscription_group_id',
};

/** What a rule of the API says: the first that it quotes is the field that it is about. */
export function refusalOf(refused: string): Refusal {
  const field = FIELDS[refused] ?? /'([^']{1,255})'/.exec(refused)?.[1];
  return field === undefined ? { refused } : { refused, field };
}

/**
 * As whom rows are judged: what the workspace says about them, remembered as long as a web process remembers an API key.
 * @param cacheMs milliseconds
 */
export function createCallers(pool: Pool, workspaceId: string, cacheMs: number) {
  let known: { at: number; caller: Omit<Caller, 'now' | 'requestId'> } | undefined;
  return async function callerOf(requestId: string): Promise<Caller> {
    const now = Date.now();
    if (!known || now - known.at > cacheMs) {
      const { channels, blocked } = await readRules(pool, workspaceId);
      const refused = new Set(blocked);
      known = {
        at: now,
        caller: {
          workspaceId,
          hasGroup: (id) => Object.hasOwn(channels, id),
          channelOf: (id) => channels[id],
          isBlocked: (externalId) => refused.has(externalId),
        },
      };
    }
    return { ...known.caller, requestId, now };
  };
}

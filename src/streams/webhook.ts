import { createHmac, randomBytes } from 'node:crypto';
import { createCaller } from '../platform/outgoing.ts';
import type { Reach } from '../platform/reach.ts';
import { DeliveryError, type Destination } from './destination.ts';

/** A secret in the format of Standard Webhooks: `whsec_` and the key in base64. */
const SECRET = /^whsec_([A-Za-z0-9+/]{32,88}={0,2})$/;
const SECRET_BYTES = 32;

/** Milliseconds for a complete request. */
const TIMEOUT_MS = 15_000;
const MAX_BATCH = { messages: 500, bytes: 524_288 };

export function newWebhookSecret(): string {
  return `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`;
}

/** @returns the rule that the secret breaks, as a predicate for its name; undefined if it is valid */
export function refusalOfSecret(secret: string): string | undefined {
  return SECRET.test(secret) ? undefined : 'must be whsec_ and 24 to 64 bytes in base64';
}

/**
 * Returns the Standard Webhooks signature: HMAC-SHA256 of `id.timestamp.body` with the key that follows
 * `whsec_`.
 * @param at seconds since 1970
 */
export function signatureOf(secret: string, { id, at, body }: { id: string; at: number; body: string }) {
  const key = Buffer.from(SECRET.exec(secret)![1]!, 'base64');
  return `v1,${createHmac('sha256', key).update(`${id}.${at}.${body}`).digest('base64')}`;
}

interface WebhookOptions {
  url: string;
  secret: string;
  reach: Reach;
  milliseconds?: number;
}

/**
 * Opens a webhook destination. Batches of messages are sent by POST as `{"messages": […]}` with a Standard
 * Webhooks signature. Any 2xx response acknowledges the batch. Other responses, including redirects, are
 * retried, except 410.
 */
export function openWebhook({ url, secret, reach, milliseconds = TIMEOUT_MS }: WebhookOptions): Destination {
  const caller = createCaller(reach, { connections: 1 });

  async function post(body: string, id: string, signal: AbortSignal) {
    const at = Math.floor(Date.now() / 1000);
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'penstock',
      'webhook-id': id,
      'webhook-timestamp': String(at),
      'webhook-signature': signatureOf(secret, { id, at, body }),
    };
    try {
      return await caller.post(url, { headers, body, milliseconds, signal });
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      const { name, message, code } = error as Error & { code?: string };
      const reason =
        name === 'TimeoutError' ? `no answer within ${milliseconds / 1000} s` : message || code || name;
      throw new DeliveryError(reason, { cause: error });
    }
  }

  return {
    limits: MAX_BATCH,
    async deliver({ id, envelopes }, signal) {
      const { status } = await post(`{"messages":[${envelopes.join(',')}]}`, id, signal);
      if (status >= 200 && status < 300) return;
      const redirect = status >= 300 && status < 400 ? ': redirects are not followed' : '';
      throw new DeliveryError(`the destination answered ${status}${redirect}`, { isGone: status === 410 });
    },
    close: () => caller.close(),
  };
}

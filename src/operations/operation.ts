import type { ErrorName, Rejection } from '../errors.ts';
import type { AcceptedObject } from '../jobs/envelope.ts';
import type { Trace } from '../jobs/traces.ts';
import type { Renderer } from '../preferences/renderer.ts';
import type { LinkSettings } from '../preferences/settings.ts';
import type { LongStrings } from '../profile/attribute-rule.ts';
import type { Json } from '../profile/json.ts';
import { refuse } from '../profile/refusal.ts';
import type { Schema } from '../schemas/compile.ts';
import type { BucketName } from '../schemas/limits.ts';
import type { VendorRules } from '../schemas/vendor-rules.ts';
import type { Database } from '../store/database.ts';
import type { Channel } from '../store/subscription-states.ts';

/** Settings that change how operations validate requests. */
export interface OperationOptions {
  longStrings?: LongStrings | undefined;
  /** Default: the rules of the specification. */
  rules?: VendorRules | undefined;
}

/** The authenticated caller of an operation, with the id and the time of its request. */
export interface Caller {
  workspaceId: string;
  /** Id of the company of the SCIM token. Absent with an API key. */
  companyId?: string;
  /** Id of the SCIM token and the client's IP address. Absent with an API key. */
  scimToken?: { id: string; address: string | undefined };
  /**
   * The `X-Request-Id` of the answer, a UUID. Rows that the request creates get this id. A retry after an unknown
   * outcome runs with the id of the first attempt, so it finds the rows that the first attempt created.
   */
  requestId: string;
  /** Returns whether the workspace has this subscription group. Archived groups count. */
  hasGroup(id: string): boolean;
  /**
   * Returns the channel of the workspace's subscription group, archived or not, or undefined if the workspace has no
   * such group.
   */
  channelOf(id: string): Channel | undefined;
  /** Returns whether the workspace blocks this external id. Objects addressed to it are refused. */
  isBlocked(externalId: string): boolean;
  /** Arrival time of the request in epoch milliseconds. */
  now: number;
}

/** A request that was refused as a whole. */
export interface RefusedRequest {
  status: number;
  message: string;
  /** The elements that caused the refusal. Absent if the cause is the request as a whole. */
  errors?: Json | undefined;
  /** The parsed body. Absent if the request was refused before its body was read. */
  body?: Record<string, Json> | undefined;
}

export interface Reply {
  status: number;
  body: Json | undefined;
  /**
   * The JSON text of a large body, instead of `body`. It is generated while it is sent, so that the objects are never
   * all in memory.
   */
  parts?: AsyncIterable<string>;
  headers?: Record<string, string>;
}

/** The description of one endpoint. The route, validators, API documentation and contract tests are generated from it. */
interface Described {
  /** Unique id, which is also the name of the operation's file. */
  id: string;
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path in Express syntax, for example `/users/track` or `/scim/v2/Users/:id`. */
  path: string;
  /** Authentication if it is not an API key. A SCIM token may call every SCIM operation. */
  auth?: 'scim';
  /** The permission that the API key needs. If absent, any key of the workspace may call the operation. */
  permission?: string;
  /** The rate limit, which all operations of the bucket share. */
  bucket: BucketName;
  /**
   * Marks a read with a method other than GET. With an `Idempotency-Key`, a retry is executed again instead of
   * returning the stored answer.
   */
  readsOnly?: true;
  summary: string;
  description: string;
  /**
   * Schema of the whole body. A direct operation answers 400 if the body does not match; a queued operation validates
   * each object.
   */
  body?: Schema;
  /** Converts a body to the names and shape of `body`, where clients may write it in several ways. */
  spell?(body: Record<string, Json>): Record<string, Json>;
  query?: Schema;
  /** Allows a longer query string, with up to 50 users by their longest identifiers. */
  listsInQuery?: true;
  /** Maximum size of the body in bytes, if lower than MAX_BODY_BYTES. */
  maxBytes?: number;
  /** The error if the body is larger than `maxBytes`. Default: `bodyTooLarge`. */
  tooLarge?: ErrorName;
  /** Schema of each successful answer, by status. */
  replies: Record<number, { description: string; schema: Schema }>;
  /** Errors of the catalogue that the operation itself throws. */
  refusals?: readonly ErrorName[];
  /** Messages of `refusals` that differ from the catalogue. */
  messages?: Partial<Record<ErrorName, string>>;
  /** Builds the body of an error answer. Default: `{message}`. */
  errorBody?(refusal: RefusedRequest): Json;
  /** Content type of answers with a body. Default: `application/json`. */
  contentType?: string;
  /** Schema of the result of `errorBody`. */
  errorSchema?: Schema;
  /** A valid request and its answer, for the documentation. */
  example: { body?: Json; query?: Record<string, string>; params?: Record<string, string>; reply: Json };
}

/** An operation that answers when its objects are on disk in the queue. Workers apply the objects. */
export interface QueuedOperation extends Described {
  kind: 'queued';
  /** Limits the operation to half of the queue, so that it is refused before other operations are. */
  isBulk?: true;
  /**
   * Maximum time in milliseconds that the answer waits until the objects have taken effect, so that the caller can read
   * them. After that time, the answer is sent anyway. If absent, the answer does not wait.
   */
  readBackWithin?: number;
  /**
   * Separates valid objects from invalid ones. Pure.
   * @throws {BadRequest|ApiError} if no object of the request is valid
   */
  plan(caller: Caller, body: Record<string, Json>): Plan;
  /** Does the work of `plan` in steps, so that the event loop can serve other requests in between. */
  steps?(caller: Caller, body: Record<string, Json>): Generator<void, Plan>;
}

export interface Plan {
  objects: AcceptedObject[];
  /** The refused objects, with the positions that the answer reports. */
  rejected: readonly Rejection[];
  /**
   * The answer once the objects are on disk. With `replyOf` or `readBack`, it is sent only if the objects took too long
   * to take effect.
   */
  reply: Reply;
  /**
   * Builds the answer from the outcome of the objects. If present, the request waits for that outcome. Pure.
   *
   * @param errors the reason by object id, for each object that did not take effect
   */
  replyOf?(errors: ReadonlyMap<string, string>): Reply;
  /** Reads the answer from the store after the objects have taken effect. The operation must set `readBackWithin`. */
  readBack?(resources: Pick<Resources, 'database'>): Promise<Reply>;
}

/** Services that a direct operation may use. */
export interface Resources {
  database: Database;
  /** Wire name of the service id. */
  serviceIdField: string;
  /** Renders the templates of preference centers to validate them. */
  renderer: Renderer;
  links: LinkSettings;
  downloads: DownloadSettings;
  waiting: WaitingSearch;
  /** Notifies the sync processes of a new run. Without the notification they find the run by polling, some seconds later. */
  announceRun(runId: string): Promise<void>;
}

/** Search in the envelopes that wait in the lanes. */
export interface WaitingSearch {
  /**
   * Returns the waiting envelopes with objects of the request, among those with ids in the range.
   * @throws if the queue is unavailable
   */
  find(
    requestId: string,
    workspaceId: string,
    ids: [string, string],
  ): Promise<{ envelopeId: string; lane: number; trace: Trace }[]>;
}

/** Destination of segment exports, and the address of their links. */
export interface DownloadSettings {
  /** Exports are uploaded to a bucket and have no links. */
  isBucket: boolean;
  /** Returns the public URL of the file for a token. */
  urlOf(token: string): string;
}

/** An operation that answers from the store. */
export interface DirectOperation extends Described {
  kind: 'direct';
  /** The operation searches the queue for waiting objects. */
  readsQueue?: true;
  /** The operation renders templates, which needs a free render process. */
  renders?: true;
  /** The answer may be large. The process handles only a few such requests at a time, and fewer for each workspace. */
  isLarge?: true;
  handle(caller: Caller, input: DirectInput, resources: Resources): Promise<Reply>;
}

export interface DirectInput {
  body: Record<string, Json>;
  query: Record<string, Json>;
  params: Record<string, string>;
  /** Absent if a test calls the operation without a server. */
  request?: AboutRequest;
}

/** Facts about the HTTP request that some operations need. */
export interface AboutRequest {
  /** Scheme and host of the request's URL, without a trailing slash. */
  baseUrl: string;
  /** Value of the `If-Match` header. */
  ifMatch?: string;
  ifNoneMatch?: string;
}

export type Operation = QueuedOperation | DirectOperation;

/** The refusal of an object for a blocked external id. Clients match on this text. */
export const BLOCKED_ID = refuse(
  'blocked',
  'external_id',
  'provided external_id is blacklisted and disallowed',
);

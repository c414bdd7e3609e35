import type { ErrorName, Rejection } from '../errors.ts';
import type { AcceptedObject } from '../jobs/envelope.ts';
import type { Trace } from '../jobs/traces.ts';
import type { Renderer } from '../preferences/renderer.ts';
import type { LongStrings } from '../profile/attribute-rule.ts';
import type { Json } from '../profile/json.ts';
import { refuse } from '../profile/refusal.ts';
import type { Schema } from '../schemas/compile.ts';
import type { BucketName } from '../schemas/limits.ts';
import type { VendorRules } from '../schemas/vendor-rules.ts';
import type { Database } from '../store/database.ts';
import type { Channel } from '../store/subscription-states.ts';

/** What the settings say about the operations. */
export interface OperationOptions {
  longStrings?: LongStrings | undefined;
  /** Absent: the rules of the specification. */
  rules?: VendorRules | undefined;
}

/** Who asks, when, and as which request. */
export interface Caller {
  workspaceId: string;
  /** The company of the SCIM token that was shown; absent with an API key. */
  companyId?: string;
  /** Id of the SCIM token, and the address that it came from; absent with an API key. */
  scimToken?: { id: string; address: string | undefined };
  /**
   * The `X-Request-Id` of the answer, a UUID. What the request makes has it as its id. A request that is tried again
   * because nobody knows how far it got is tried under the same one, and finds what it has made already.
   */
  requestId: string;
  /** Whether the workspace has this subscription group, archived or not. */
  hasGroup(id: string): boolean;
  /** The channel of the workspace's subscription group, archived or not; undefined: it has no such group. */
  channelOf(id: string): Channel | undefined;
  /** Whether objects of the workspace that are addressed to this external id are refused. */
  isBlocked(externalId: string): boolean;
  /** Epoch milliseconds at which the request arrived. */
  now: number;
}

/** A request that is refused as a whole. */
export interface RefusedRequest {
  status: number;
  message: string;
  /** Elements of the request that caused the refusal; absent if the request as a whole did. */
  errors?: Json | undefined;
  /** The parsed body; absent if the request was refused before its body was read. */
  body?: Record<string, Json> | undefined;
}

export interface Reply {
  status: number;
  body: Json | undefined;
  /** The JSON text of a large body instead of `body`. It is made while it is read, so that not all of it is in memory as objects. */
  parts?: AsyncIterable<string>;
  headers?: Record<string, string>;
}

/** Everything about one endpoint. Router entry, validator, documentation and contract tests follow from it. */
interface Described {
  /** Unique; the name of its file. */
  id: string;
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Express syntax: `/users/track`, `/scim/v2/Users/:id`. */
  path: string;
  /** How callers prove who they are, if not by an API key: a SCIM token opens every operation of SCIM. */
  auth?: 'scim';
  /** What the key must carry; absent: any key of the workspace opens it. */
  permission?: string;
  /** The rate limit that it shares with the other operations of the same bucket. */
  bucket: BucketName;
  /**
   * It asks by another method than GET, and changes nothing: it is answered anew also where an `Idempotency-Key` promises
   * one effect.
   */
  readsOnly?: true;
  summary: string;
  description: string;
  /** Schema of the whole body. What it refuses of a direct operation is refused with 400; a queued one judges object by object. */
  body?: Schema;
  /** Makes of a body the one that its schema describes, where clients may write it in several ways. */
  spell?(body: Record<string, Json>): Record<string, Json>;
  query?: Schema;
  /** Its query may name a list of users: it may be as long as 50 of the longest names. */
  listsInQuery?: true;
  /** Bytes that its body may have, if fewer than any other's. */
  maxBytes?: number;
  /** The error for a body over the limit; `bodyTooLarge` by default. */
  tooLarge?: ErrorName;
  /** Schema of each answer, by status. */
  replies: Record<number, { description: string; schema: Schema }>;
  /** Errors of the catalogue that its own rules end with. */
  refusals?: readonly ErrorName[];
  /** Texts of those errors that differ from the catalogue. */
  messages?: Partial<Record<ErrorName, string>>;
  /** The body of an error answer; `{message}` unless the specification wants more. */
  errorBody?(refusal: RefusedRequest): Json;
  /** Of its answers with a body, if not `application/json`. */
  contentType?: string;
  /** Schema of what `errorBody` makes. */
  errorSchema?: Schema;
  /** A request that is accepted as it stands, and the answer to it. */
  example: { body?: Json; query?: Record<string, string>; params?: Record<string, string>; reply: Json };
}

/** Answered when its objects are on disk in the queue; applied by the workers. */
export interface QueuedOperation extends Described {
  kind: 'queued';
  /** While much waits, it is refused before others are. */
  givesWay?: true;
  /**
   * Milliseconds for which the answer waits until the objects have taken effect, so that the caller reads them back;
   * then it is given all the same. Absent: it means that they are on disk, and says so at once.
   */
  readBackWithin?: number;
  /**
   * Separates what can be applied from what cannot. Pure.
   * @throws {BadRequest|ApiError} when nothing of the request can be accepted
   */
  plan(caller: Caller, body: Record<string, Json>): Plan;
  /** As `plan`, where that may take long: between two steps others get their turn. */
  steps?(caller: Caller, body: Record<string, Json>): Generator<void, Plan>;
}

export interface Plan {
  objects: AcceptedObject[];
  /** Objects that were refused, as the answer names them. */
  rejected: readonly Rejection[];
  /** The answer once the objects are on disk; with `replyOf` or `readBack`, the one if the objects have not taken effect in time. */
  reply: Reply;
  /**
   * Makes the answer of how the objects have ended, which the request then waits for. Pure.
   *
   * @param errors by the id of each object that did not take effect, why
   */
  replyOf?(errors: ReadonlyMap<string, string>): Reply;
  /** Reads the answer from the store after the objects have taken effect. The operation needs `readBackWithin`. */
  readBack?(resources: Pick<Resources, 'database'>): Promise<Reply>;
}

/** What a direct operation reaches. */
export interface Resources {
  database: Database;
  /** Wire name of the service id. */
  serviceIdField: string;
  /** Tries templates. */
  renderer: Renderer;
  links: LinkSettings;
  downloads: DownloadSettings;
  waiting: WaitingSearch;
  /** Tells the sync processes of a run that has begun; they would find it by themselves, some seconds later. */
  announceRun(runId: string): Promise<void>;
}

/** What is in the lanes. */
export interface WaitingSearch {
  /**
   * The envelopes with ids of the range that carry objects of the request.
   * @throws when the queue does not answer
   */
  find(
    requestId: string,
    workspaceId: string,
    ids: [string, string],
  ): Promise<{ envelopeId: string; lane: number; trace: Trace }[]>;
}

/** How the links that open preference centers are made. */
export interface LinkSettings {
  /** Address of the page of a token, as the world knows it. */
  urlOf(token: string): string;
  /** Days for which a new link opens its page. */
  days: number;
}

/** Where exports of segments go, and how their links are made. */
export interface DownloadSettings {
  /** They go to a bucket, and have no links. */
  isBucket: boolean;
  /** Address of the file of a token, as the world knows it. */
  urlOf(token: string): string;
}

/** Answered from the store. */
export interface DirectOperation extends Described {
  kind: 'direct';
  /** Looks for objects that still wait in the queue. */
  asksQueue?: true;
  /** Tries templates, which takes a free render process. */
  renders?: true;
  /** Its answer may be large: a few requests at a time are answered, and of one workspace fewer. */
  isLarge?: true;
  handle(caller: Caller, input: DirectInput, resources: Resources): Promise<Reply>;
}

export interface DirectInput {
  body: Record<string, Json>;
  query: Record<string, Json>;
  params: Record<string, string>;
  /** Absent where an operation is tried without a server. */
  request?: AboutRequest;
}

/** What an operation may want to know of the request beside what it carries. */
export interface AboutRequest {
  /** Scheme and host that the caller knows us by, without a slash at the end. */
  baseUrl: string;
  /** The header of this name. */
  ifMatch?: string;
  ifNoneMatch?: string;
}

export type Operation = QueuedOperation | DirectOperation;

/** Refuses an object for a blocked external id. Clients match on this text. */
export const BLOCKED_ID = refuse(
  'blocked',
  'external_id',
  'provided external_id is blacklisted and disallowed',
);

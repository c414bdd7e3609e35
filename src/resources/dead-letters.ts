import type { Json } from '../profile/json.ts';
import { text } from './fields.ts';
import { InvalidValue } from './refusal.ts';
import { type Column, iso, type Tone } from './resource.ts';

/** Maximum length in characters of the reason for a discard. */
const MAX_REASON = 500;

/** Reads the reason for a discard, which is stored with the dead letter. */
export function readReason(given: string): string {
  const reason = given.trim();
  if (reason === '' || reason.length > MAX_REASON)
    throw new InvalidValue(`A reason must have 1 to ${MAX_REASON} characters.`);
  return reason;
}

/** Fields of the forms that discard dead letters. */
export const discardFields = {
  why: text(
    { label: 'Reason to discard', help: 'kept with the dead letter, for example: sent by a test' },
    readReason,
    { maxLength: MAX_REASON },
  ),
};

/** A dead letter, as read for a list or alone. A list does not read the optional members. */
export interface ShownDeadLetter {
  id: string;
  /** Name of the workspace. */
  workspace?: string;
  requestId?: string;
  jobName?: string;
  kind: string;
  reason: string;
  state: string;
  replays?: number;
  failedAt: Date;
  replayedAt?: Date | null;
  discardedAt?: Date | null;
  discardedBy?: string | null;
  discardReason?: string | null;
  mendedAt?: Date | null;
  mendedBy?: string | null;
  /** The object as JSON text. */
  object?: string | null;
}

/** A time and who acted then, for the console. */
const byWhom = (at: Date | null | undefined, who: string | null | undefined) =>
  at ? { text: `by ${who}`, at } : {};

const toneOf = (state: string): Tone => (state === 'waiting' ? 'bad' : 'calm');

/**
 * Columns of a dead letter, for the console and `penstock dead-letters`. The pages add links, and mask reasons for viewers
 * who may not see them.
 */
export const deadLetterColumns: readonly Column<ShownDeadLetter>[] = [
  { name: 'dead_letter_id', value: ({ id }) => id },
  { name: 'failed_at', value: ({ failedAt }) => iso(failedAt) },
  { name: 'workspace', title: 'Workspace', value: ({ workspace }) => workspace, not: ['list'] },
  {
    name: 'state',
    title: 'State',
    value: ({ state }) => state,
    shown: ({ state }) => ({ badge: state, tone: toneOf(state) }),
  },
  { name: 'kind', title: 'Kind', kind: 'code', value: ({ kind }) => kind },
  { name: 'request_id', value: ({ requestId }) => requestId, not: ['table'] },
  { name: 'job_name', value: ({ jobName }) => jobName, not: ['rows', 'table'] },
  { name: 'reason', title: 'Reason', value: ({ reason }) => reason, not: ['page'] },
  {
    name: 'failed',
    title: 'Failed',
    kind: 'time',
    value: ({ failedAt }) => iso(failedAt),
    not: ['json', 'rows', 'table'],
  },
  {
    name: 'replays',
    title: 'Replays',
    kind: 'number',
    value: ({ replays }) => replays,
    not: ['rows', 'table', 'list'],
  },
  {
    name: 'replayed_at',
    title: 'Replayed',
    value: ({ replayedAt }) => iso(replayedAt),
    shown: ({ replayedAt }) => (replayedAt ? { at: replayedAt } : { text: 'not yet' }),
    not: ['rows', 'table', 'list'],
  },
  {
    name: 'mended_at',
    title: 'Corrected',
    value: ({ mendedAt }) => iso(mendedAt),
    shown: ({ mendedAt, mendedBy }) => (mendedAt ? byWhom(mendedAt, mendedBy) : { text: 'no' }),
    not: ['rows', 'table', 'list'],
  },
  {
    name: 'discarded_at',
    title: 'Discarded',
    value: ({ discardedAt }) => iso(discardedAt),
    shown: ({ discardedAt, discardedBy }) =>
      discardedAt ? byWhom(discardedAt, discardedBy) : { text: 'no' },
    not: ['rows', 'table', 'list'],
  },
  {
    name: 'discarded_by',
    title: 'Discarded by',
    value: ({ discardedBy }) => discardedBy,
    not: ['rows', 'table', 'page'],
  },
  {
    name: 'discard_reason',
    title: 'Reason to discard',
    value: ({ discardReason }) => discardReason,
    not: ['rows', 'table'],
  },
  {
    name: 'object',
    value: ({ object }) => (object == null ? undefined : (JSON.parse(object) as Json)),
    not: ['rows', 'table'],
  },
];

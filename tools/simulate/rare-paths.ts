import { SMALL_SIZES } from './plan.ts';
import type { StoreKind } from './program.ts';
import type { TraceLine } from './trace.ts';

/** Details of a line of the trace, for example ids of envelopes, lanes and processes. */
interface Details {
  lane?: number;
  job?: string;
  jobs?: string[];
  max?: number;
  waiting?: number;
  to?: string;
  owner?: string;
  by?: string;
  stalled?: number;
  tx?: number;
  claimed?: string[];
  asked?: string[];
  envelopes?: string[];
  objects?: string[];
  cut?: string[];
  continued?: string[];
  fence?: string;
  isCommitted?: boolean;
  lost?: string[];
  returned?: string[];
  kind?: string;
  role?: string;
  worker?: string;
  first?: string[];
  destination?: string;
  sync?: string;
  repeated?: number;
  messages?: number;
  statement?: string;
  ids?: string[];
  code?: string;
}

/** A path of the code that simulations must take sometimes. */
interface RarePath {
  name: string;
  /** A long run fails if no seed takes an essential path. */
  isEssential: boolean;
  /** The form of the simulation that can take the path. If absent, both can. */
  store?: StoreKind;
  /** Returns whether a line of the trace shows this path. */
  isTaken(line: TraceLine & { details: Details }, seen: Seen): boolean;
}

/** State that is derived from the earlier lines of the trace. */
class Seen {
  /** The last lease of each lane. */
  readonly holders = new Map<number, { token: string; job: string }>();
  /** The worker that cut an envelope last, by envelope. */
  readonly cuts = new Map<string, string>();
  /** Envelopes that have taken effect. */
  readonly applied = new Set<string>();
  /** The worker whose open transaction has claimed an envelope, by envelope. */
  readonly claims = new Map<string, string>();
  /** The worker that lost the lease of an envelope, by envelope. */
  readonly lost = new Map<string, string>();
  /** Names of workers that have ended. */
  readonly ended = new Set<string>();
  /** The workers that have arrived at a fence, by fence. */
  readonly arrivals = new Map<string, Set<string>>();
  /** Fences at which a lane waits, by lane. */
  readonly waits = new Map<number, Set<string>>();
  /** The process that has delivered messages and not acknowledged them, by destination. */
  readonly unacknowledged = new Map<string, string>();
  /** The process that has the lease of a destination. */
  readonly deliverers = new Map<string, string>();
  /** Dead letters that are being replayed. */
  readonly replayed = new Set<string>();

  note({ what, details }: TraceLine & { details: Details }): void {
    const { lane, job, to = '', by = '' } = details;
    switch (what) {
      case 'handed out':
        this.holders.set(lane!, { token: to, job: job! });
        return;
      case 'stalled': {
        const holder = this.holders.get(lane!);
        if (holder) this.lost.set(job!, processOf(holder.token));
        return;
      }
      case 'claimed':
        for (const id of details.claimed!) this.claims.set(id, by);
        return;
      case 'rolled back':
        for (const id of details.claimed!) this.claims.delete(id);
        return;
      case 'committed':
        for (const id of details.envelopes!) this.applied.add(id);
        for (const id of [...details.envelopes!, ...details.cut!]) this.claims.delete(id);
        for (const id of details.cut!) this.cuts.set(id, by);
        for (const fences of this.waits.values()) for (const id of details.envelopes!) fences.delete(id);
        for (const id of details.objects!) this.replayed.delete(id.replace(' (dead letter)', ''));
        return;
      case 'delivered':
        this.unacknowledged.set(details.destination!, by);
        return;
      case 'delivery acknowledged':
        this.unacknowledged.delete(details.destination!);
        return;
      case 'stream leased':
        this.deliverers.set(details.destination!, by);
        return;
      case 'stream given back':
        this.deliverers.delete(details.destination!);
        return;
      case 'replay':
        for (const id of details.ids!) this.replayed.add(id);
        return;
      case 'worker ended':
        this.ended.add(details.worker!);
        return;
      case 'arrived':
        this.arrivals.set(details.fence!, (this.arrivals.get(details.fence!) ?? new Set()).add(by));
        this.waits.set(lane!, (this.waits.get(lane!) ?? new Set()).add(details.fence!));
        return;
    }
  }
}

const processOf = (token: string): string => token.split('#')[0]!;

const is =
  (what: string): RarePath['isTaken'] =>
  (line) =>
    line.what === what;

const isFault =
  (kind: string): RarePath['isTaken'] =>
  (line) =>
    line.what === 'fault' && line.details.kind === kind;

const rarePaths: readonly RarePath[] = [
  { name: 'a lease is lost, and the envelope waits again', isEssential: true, isTaken: is('stalled') },
  {
    name: 'the lease of an envelope is lost twice',
    isEssential: false,
    isTaken: ({ what, details }) => what === 'handed out' && details.stalled! > 1,
  },
  {
    name: 'a worker finishes an envelope whose lease it has lost',
    isEssential: true,
    isTaken: is('finish refused'),
  },
  {
    name: 'a worker looks at a lane whose lease it has lost',
    isEssential: true,
    isTaken: is('window refused'),
  },
  {
    name: 'a worker completes envelopes of a lane whose lease it has lost',
    isEssential: true,
    isTaken: is('complete refused'),
  },
  {
    name: 'the lease of a lane is lost while its envelope is in a transaction',
    isEssential: true,
    isTaken: ({ what, details }, { claims }) => what === 'stalled' && claims.has(details.job!),
  },
  {
    name: 'an envelope that has taken effect is handed out again',
    isEssential: true,
    isTaken: ({ what, details }, { applied }) => what === 'handed out' && applied.has(details.job!),
  },
  {
    name: 'a worker gets a lane whose holder has ended',
    isEssential: true,
    isTaken: ({ what, details }, { lost, ended }) =>
      what === 'handed out' && details.stalled! > 0 && ended.has(lost.get(details.job!) ?? ''),
  },
  {
    name: 'a worker gets a lane whose holder is frozen or cut off',
    isEssential: true,
    isTaken: ({ what, details }, { lost, ended }) => {
      const before = lost.get(details.job ?? '');
      return (
        what === 'handed out' &&
        before !== undefined &&
        before !== processOf(details.to!) &&
        !ended.has(before)
      );
    },
  },
  {
    name: 'a transaction waits for a claim of another process',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'waits for a claim' && details.by !== details.owner,
  },
  { name: 'a wait for a claim ends by its time-out', isEssential: false, isTaken: is('lock timeout') },
  {
    name: 'none of the envelopes of a transaction is claimed',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'claimed' && details.claimed!.length === 0,
  },
  {
    name: 'some of the envelopes of a transaction are claimed, and others not',
    isEssential: true,
    isTaken: ({ what, details }) =>
      what === 'claimed' && details.claimed!.length > 0 && details.claimed!.length < details.asked!.length,
  },
  {
    name: 'COMMIT is carried out and its answer is lost',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'commit without an answer' && details.isCommitted === true,
  },
  {
    name: 'COMMIT is lost on its way',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'commit without an answer' && details.isCommitted === false,
  },
  {
    name: 'the transaction of a silent worker is ended',
    isEssential: true,
    isTaken: is('idle transaction ended'),
  },
  {
    name: 'a worker ends with a transaction open',
    isEssential: true,
    isTaken: ({ what, details }, { claims }) =>
      what === 'worker ended' && [...claims.values()].includes(details.worker!),
  },
  {
    name: 'a worker ends between COMMIT and the end of the envelope',
    isEssential: true,
    isTaken: ({ what, details }, { holders, applied }) =>
      what === 'worker ended' &&
      [...holders.values()].some(({ token, job }) => processOf(token) === details.worker && applied.has(job)),
  },
  {
    name: 'an envelope is cut',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'committed' && details.cut!.length > 0,
  },
  {
    name: 'an envelope is cut twice',
    isEssential: true,
    isTaken: ({ what, details }, { cuts }) => what === 'committed' && details.cut!.some((id) => cuts.has(id)),
  },
  {
    name: 'what is left of a cut envelope is applied by another worker',
    isEssential: true,
    isTaken: ({ what, details }, { cuts }) =>
      what === 'committed' && details.continued!.some((id) => cuts.get(id) !== details.by),
  },
  {
    name: 'a worker ends after it has cut an envelope',
    isEssential: true,
    isTaken: ({ what, details }, { cuts, applied }) =>
      what === 'worker ended' && [...cuts].some(([id, by]) => by === details.worker && !applied.has(id)),
  },
  {
    name: 'an add is seen in front of another one that came later and was faster',
    isEssential: true,
    isTaken: is('added in front'),
  },
  {
    name: 'an envelope is added again while the lane holds it',
    isEssential: true,
    isTaken: is('added before'),
  },
  {
    name: 'an envelope is added again after it has taken effect',
    isEssential: true,
    isTaken: ({ what, details }, { applied }) => what === 'added' && applied.has(details.job!),
  },
  {
    name: 'lanes of two processes meet at a fence',
    isEssential: true,
    isTaken: ({ what, details }, { arrivals }) => {
      const others = arrivals.get(details.fence ?? '');
      return what === 'arrived' && others !== undefined && !others.has(details.by!);
    },
  },
  {
    name: 'a lane comes to a fence that is passed',
    isEssential: true,
    isTaken: is('arrived at a fence that is passed'),
  },
  {
    name: 'several fences take effect in one transaction',
    isEssential: true,
    isTaken: ({ what, details }, { arrivals }) =>
      what === 'committed' && details.envelopes!.filter((id) => arrivals.has(id)).length > 1,
  },
  {
    name: 'a later envelope leaves a lane that waits at a fence',
    isEssential: true,
    // Ids of envelopes begin with their time; those of marks, which are not applied, do not.
    isTaken: ({ what, details }, { waits, applied }) =>
      what === 'completed' &&
      details.jobs!.some(
        (job) => applied.has(job) && [...(waits.get(details.lane!) ?? [])].some((fence) => job > fence),
      ),
  },
  {
    name: 'a worker ends at a fence',
    isEssential: true,
    isTaken: ({ what, details }, { arrivals, applied }) =>
      what === 'worker ended' &&
      [...arrivals].some(([fence, by]) => !applied.has(fence) && by.has(details.worker!)),
  },
  { name: 'a lane is given back at a fence', isEssential: false, isTaken: is('given back') },
  {
    name: 'an object becomes a dead letter',
    isEssential: true,
    isTaken: ({ what, details }) =>
      what === 'committed' && details.objects!.some((id) => id.endsWith('(dead letter)')),
  },
  {
    name: 'a dead letter and objects that take effect are in one transaction',
    isEssential: true,
    isTaken: ({ what, details }) =>
      what === 'committed' &&
      details.objects!.some((id) => id.endsWith('(dead letter)')) &&
      details.objects!.some((id) => !id.endsWith('(dead letter)')),
  },
  {
    name: 'an attempt of a process that ended is found for an envelope',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'earlier attempt found' && details.kind === 'envelope',
  },
  {
    name: 'an attempt of a process that ended is found for an object',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'earlier attempt found' && details.kind === 'object',
  },
  {
    name: 'a failover brings envelopes back that have taken effect',
    isEssential: true,
    isTaken: ({ what, details }, { applied }) =>
      what === 'failed over' && details.returned!.some((id) => applied.has(id)),
  },
  {
    name: 'a failover loses envelopes that were not acknowledged',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'failed over' && details.lost!.length > 0,
  },
  {
    name: 'the lease of a lane is ended while its holder runs',
    isEssential: true,
    isTaken: ({ what, details }, { holders, applied, ended }) => {
      const holder = what === 'lease ended' ? holders.get(details.lane!) : undefined;
      return holder !== undefined && !applied.has(holder.job) && !ended.has(processOf(holder.token));
    },
  },
  {
    name: 'an envelope is removed whose end was refused',
    isEssential: true,
    isTaken: is('removed'),
  },
  {
    name: 'an envelope waits behind the lease although it has taken effect',
    isEssential: true,
    isTaken: ({ what, details }, { applied }) =>
      what === 'window' && details.first!.some((id) => applied.has(id)),
  },
  {
    name: 'a deep snapshot of a lane shows more jobs than another one',
    isEssential: true,
    isTaken: ({ what, details }) =>
      what === 'window' && details.max === SMALL_SIZES.deep && details.waiting! > SMALL_SIZES.max,
  },
  {
    name: 'a worker goes on under the lease of an envelope that has taken effect',
    isEssential: true,
    isTaken: ({ what, details }, { applied }) => what === 'window' && applied.has(details.job!),
  },
  {
    name: 'a web process is killed',
    isEssential: true,
    isTaken: ({ what, details }) => what === 'fault' && details.kind === 'kill' && details.role === 'web',
  },
  { name: 'the clock of a machine jumps', isEssential: true, isTaken: isFault('clock') },
  {
    name: 'an envelope takes effect while an earlier one is in another transaction',
    isEssential: true,
    isTaken: ({ what, details }, { claims }) =>
      what === 'committed' &&
      details.envelopes!.some((id) =>
        [...claims.keys()].some((other) => other < id && !details.envelopes!.includes(other)),
      ),
  },
  {
    name: 'a statement waits for a row lock of another process',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what, details }) => what === 'waits for a lock' && details.by !== details.owner,
  },
  {
    name: 'the cleanup of tombstones waits for a lock',
    ...{ isEssential: false, store: 'postgres' },
    isTaken: ({ what, details }) =>
      what === 'waits for a lock' && /tombstone|erase|finish|spread/.test(details.statement!),
  },
  {
    name: 'two transactions wait for each other',
    ...{ isEssential: false, store: 'postgres' },
    isTaken: is('deadlock'),
  },
  {
    name: 'an administrator ends a session in its transaction',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what, details }) =>
      what === 'session ended' && details.code === '57P01' && details.tx !== undefined,
  },
  {
    name: 'the cleanup of a merged user ends',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what, details }) => what === 'tombstones cleaned up' && details.kind === 'merged',
  },
  {
    name: 'the cleanup of a deleted user ends',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what, details }) => what === 'tombstones cleaned up' && details.kind === 'deleted',
  },
  {
    name: 'a dead letter is replayed',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: is('replay'),
  },
  {
    name: 'a user is deleted during the replay of dead letters',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what }, { replayed }) => what === 'deleted' && replayed.size > 0,
  },
  {
    name: 'a destination gets messages again',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what, details }) => what === 'delivered' && details.repeated! > 0,
  },
  {
    name: 'a destination gets repeated and new messages in one batch',
    ...{ isEssential: false, store: 'postgres' },
    isTaken: ({ what, details }) =>
      what === 'delivered' && details.repeated! > 0 && details.repeated! < details.messages!,
  },
  {
    name: 'a destination refuses a batch',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: is('delivery refused'),
  },
  {
    name: 'a process that delivers ends between delivery and acknowledgement',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what, details }, { unacknowledged }) =>
      what === 'sync ended' && [...unacknowledged.values()].includes(details.sync!),
  },
  {
    name: 'a process takes a stream that another process has not given back',
    ...{ isEssential: true, store: 'postgres' },
    isTaken: ({ what, details }, { deliverers }) => {
      const before = deliverers.get(details.destination ?? '');
      return what === 'stream leased' && before !== undefined && before !== details.by;
    },
  },
  {
    name: 'the acknowledgement of a process without a lease is refused',
    ...{ isEssential: false, store: 'postgres' },
    isTaken: is('acknowledgement refused'),
  },
];

/** Returns the paths of a form of the simulation. */
export const rarePathsOf = (kind: StoreKind): RarePath[] =>
  rarePaths.filter(({ store }) => store === undefined || store === kind);

/** Watches a simulation for rare paths. */
export class PathWatcher {
  readonly taken = new Set<string>();
  readonly #seen = new Seen();
  readonly #paths: readonly RarePath[];

  constructor(kind: StoreKind) {
    this.#paths = rarePathsOf(kind);
  }

  /** Checks whether a line of the trace shows a path. Call it with every line, in order. */
  observe(line: TraceLine): void {
    for (const { name, isTaken } of this.#paths)
      if (!this.taken.has(name) && isTaken(line, this.#seen)) this.taken.add(name);
    this.#seen.note(line);
  }
}

import type { SnapshotSizes } from '../../workers/lane/lane-window.ts';
import { CALM, type Weather } from './link.ts';
import { Random } from './random.ts';

/** The work and the faults of a simulation. A seed determines the plan, and shrinking removes parts of it. */
export interface Plan {
  seed: number;
  settings: Settings;
  /** Sorted by time. */
  requests: PlannedRequest[];
  faults: Fault[];
}

export interface Settings {
  kind: 'redis' | 'postgres';
  lanes: number;
  workers: number;
  webs: number;
  /** Whether each worker opens every lane at its start. Otherwise each lane has one worker. */
  worksEverything: boolean;
  /** Milliseconds after which the lease of a lane expires unless it is renewed. */
  lockDuration: number;
  /** Milliseconds between two searches for lost leases. */
  stalledInterval: number;
  /** Milliseconds that an object takes, by workspace. */
  perObject: number[];
  /** Milliseconds in which requests are sent and faults happen. */
  length: number;
  /** Whether adds wait for a replica, which may take over. */
  hasReplica: boolean;
  /** The network outside of storms. */
  weather: Weather;
  /** Sizes of the snapshots of a lane, if they are smaller than in the product. */
  sizes?: SnapshotSizes;
  /** Present only in a simulation with a real Postgres. */
  postgres?: PostgresSettings;
}

export interface PostgresSettings {
  /** Processes that deliver streams. */
  syncs: number;
  /** Numbers of the workspaces whose changes are delivered to a receiver. */
  streamed: number[];
}

export interface PlannedObject {
  /** `purchase`, `attributes` and `identify` occur only in a simulation with a real Postgres. */
  kind: 'event' | 'merge' | 'delete' | 'purchase' | 'attributes' | 'identify';
  /** External ids of the users that the object names. */
  users: string[];
  /** Name of a user alias that the object names. */
  alias?: string;
  /** Failure of the database or the process that this object causes. Absent if the object can be applied. */
  poison?: 'refused' | 'slow' | 'ends the process';
  /** Characters of the properties. */
  size?: number;
}

/** A request of a client. A client sends its requests one after the other. */
export interface PlannedRequest {
  at: number;
  client: number;
  workspace: number;
  objects: PlannedObject[];
  /** Whether the request is sent again with the same envelopes until it is acknowledged. */
  isRepeated: boolean;
}

export type Role = 'worker' | 'web' | 'sync';

/**
 * A fault. `process` is the number of a process of its role. Times are in milliseconds. `for` of a killed web process
 * is the time until it starts again; a killed worker starts after a random time.
 */
export type Fault = { at: number } & (
  | { kind: 'kill' | 'freeze'; role: Role; process: number; for: number }
  | { kind: 'cut'; role: Role; process: number; server: Server; for: number }
  | { kind: 'storm'; for: number; slow: number; slowest: number; cut: number }
  | { kind: 'move lane'; lane: number; to: number; endsLease: boolean }
  | { kind: 'slow database'; for: number; factor: number }
  | { kind: 'fail over' }
  | { kind: 'clock'; role: Role; process: number; by: number }
  | { kind: 'end sessions'; role: Role; process: number }
  | { kind: 'destination fails'; for: number; chance: number }
  | { kind: 'replay dead letters'; process: number }
);

export type Server = 'queue' | 'database' | 'receiver';

/** Maximum work of one client: objects, and milliseconds in the database. */
const MAX_CLIENT_OBJECTS = 1500;
const MAX_CLIENT_MS = 3000;

/** Workloads: a mix, a backlog of one workspace, and rival workspaces with large and small requests. */
const PROFILES = [
  { settings: mixedSettings, requests: planMix },
  { settings: backlogSettings, requests: planBacklog },
  { settings: rivalSettings, requests: planRivals },
] as const;

/** Creates the plan of a seed. */
export function planOf(seed: number): Plan {
  const random = new Random(seed).fork('plan');
  const profile = random.pick(PROFILES);
  const settings = { ...profile.settings(random), ...planSizes(random.fork('sizes')) };
  return {
    seed,
    settings,
    requests: profile.requests(random.fork('requests'), settings),
    faults: random.chance(0.15) ? [] : planFaults(random.fork('faults'), settings),
  };
}

/** Sizes of snapshots with which short lanes are deep. */
export const SMALL_SIZES: SnapshotSizes = { min: 2, max: 6, deep: 48 };

/** Returns small sizes for every third plan. */
export function planSizes(random: Random): Pick<Settings, 'sizes'> {
  return random.chance(1 / 3) ? { sizes: SMALL_SIZES } : {};
}

const WEATHER: readonly Weather[] = [
  CALM,
  CALM,
  { slow: 0.2, slowest: 20, cut: 0 },
  { slow: 0.3, slowest: 100, cut: 0 },
];

function mixedSettings(random: Random): Settings {
  const kind = random.pick(['redis', 'postgres'] as const);
  const lockDuration = random.pick([1000, 3000, 20_000]);
  return {
    kind,
    lanes: random.pick([1, 1, 2, 4]),
    workers: random.integer(1, 4),
    webs: random.integer(1, 2),
    worksEverything: random.chance(0.4),
    lockDuration,
    stalledInterval: random.pick([200, 500, Math.min(5000, lockDuration)]),
    perObject: Array.from({ length: random.integer(1, 4) }, () => random.pick([0.01, 0.05, 0.3, 2])),
    length: random.pick([3000, 6000, 12_000, 30_000]),
    hasReplica: kind === 'redis' && random.chance(0.3),
    weather: random.pick(WEATHER),
  };
}

function backlogSettings(random: Random): Settings {
  const kind = random.pick(['redis', 'postgres'] as const);
  return {
    kind,
    lanes: random.pick([1, 1, 2, 4]),
    workers: random.integer(1, 3),
    webs: 1,
    worksEverything: random.chance(0.8),
    lockDuration: random.pick([1000, 1000, 5000]),
    stalledInterval: 200,
    // The first workspace has the backlog.
    perObject: [random.pick([0.5, 1, 3]), ...Array.from({ length: random.integer(1, 3) }, () => 0.05)],
    length: random.pick([1500, 3000]),
    hasReplica: false,
    weather: random.pick(WEATHER),
  };
}

function rivalSettings(random: Random): Settings {
  return {
    ...backlogSettings(random),
    lanes: random.pick([2, 4, 4]),
    workers: random.pick([1, 1, 2]),
    perObject: Array.from({ length: random.integer(3, 5) }, () => random.pick([0.3, 1])),
  };
}

function planMix(random: Random, { perObject, length }: Settings): PlannedRequest[] {
  const requests: PlannedRequest[] = [];
  const clients = random.integer(2, 10);
  const users = random.pick([3, 10, 40]);
  const identity = random.pick([0, 0.02, 0.2]);
  const poison = random.pick([0, 0, 0.002, 0.02]);
  const endsProcesses = random.chance(0.1);
  const noisyWorkspace =
    !endsProcesses && random.chance(0.3) ? random.integer(0, perObject.length - 1) : undefined;
  for (let client = 0; client < clients; client++) {
    const workspace = random.integer(0, perObject.length - 1);
    const isFlood = workspace === noisyWorkspace;
    const isBurst = random.chance(0.3);
    requests.push(
      ...planClient(random, {
        ...{ client, workspace, users, identity, poison, endsProcesses, perObject: perObject[workspace]! },
        pause: isFlood ? random.between(5, 40) : random.between(20, 500),
        maxObjects: isFlood ? random.pick([20, 75, 200]) : random.pick([1, 3, 10]),
        from: isBurst ? random.between(0, length / 2) : 0,
        to: isBurst ? random.between(length / 2, length) : length,
      }),
    );
  }
  // Keep only two objects that end processes: each of them ends several processes, until the lane is applied one object at
  // a time.
  let deadly = 0;
  for (const { objects } of requests)
    for (const object of objects)
      if (object.poison === 'ends the process' && ++deadly > 2) object.poison = 'refused';
  return requests.sort((one, other) => one.at - other.at);
}

/** One workspace sends more than the workers can apply. The others send small requests for few users. */
function planBacklog(random: Random, { perObject, length }: Settings): PlannedRequest[] {
  const requests: PlannedRequest[] = [];
  const bursts = random.integer(1, 3);
  const identity = random.pick([0, 0, 0.05]);
  const poison = random.pick([0, 0, 0.005]);
  const quiet = random.integer(1, 5);
  for (let client = 0; client < bursts + quiet; client++) {
    const isFlood = client < bursts;
    const workspace = isFlood ? 0 : random.integer(1, perObject.length - 1);
    requests.push(
      ...planClient(random, {
        ...{ client, workspace, identity, poison, endsProcesses: false, perObject: perObject[workspace]! },
        users: isFlood ? random.pick([3, 40]) : random.integer(1, 3),
        pause: isFlood ? random.between(3, 25) : random.between(5, 80),
        maxObjects: isFlood ? random.pick([20, 75]) : random.pick([1, 3, 20]),
        ...{ from: 0, to: length },
      }),
    );
  }
  return requests.sort((one, other) => one.at - other.at);
}

/** Each workspace sends large and small requests for the same users. */
function planRivals(random: Random, { perObject, length }: Settings): PlannedRequest[] {
  const requests: PlannedRequest[] = [];
  const poison = random.pick([0, 0, 0.002]);
  const users = random.pick([4, 20]);
  for (let client = 0; client < 2 * perObject.length; client++) {
    const workspace = client % perObject.length;
    requests.push(
      ...planClient(random, {
        ...{
          client,
          workspace,
          users,
          poison,
          identity: 0,
          endsProcesses: false,
          perObject: perObject[workspace]!,
        },
        ...{ pause: random.between(5, 60), maxObjects: random.pick([4, 100, 400]), from: 0, to: length },
      }),
    );
  }
  return requests.sort((one, other) => one.at - other.at);
}

interface PlannedClient extends PlannedMix {
  client: number;
  workspace: number;
  perObject: number;
  /** Average milliseconds between two requests. */
  pause: number;
  /** Maximum number of objects in a request. */
  maxObjects: number;
  from: number;
  to: number;
}

function planClient(random: Random, planned: PlannedClient): PlannedRequest[] {
  const { client, workspace, perObject, pause, maxObjects, from, to } = planned;
  const isRepeated = random.chance(0.4);
  const requests: PlannedRequest[] = [];
  let objectsLeft = Math.min(MAX_CLIENT_OBJECTS, MAX_CLIENT_MS / perObject);
  for (
    let at = from + random.between(0, pause * 2);
    at < to && objectsLeft > 0;
    at += random.between(0, pause * 2)
  ) {
    const count = random.integer(1, random.pick([maxObjects, maxObjects, Math.min(maxObjects, 3)]));
    objectsLeft -= count;
    requests.push({
      ...{ at, client, workspace, isRepeated },
      objects: Array.from({ length: count }, () => planObject(random, planned)),
    });
  }
  return requests;
}

interface PlannedMix {
  users: number;
  /** Probabilities of an identity operation and of a poison object. */
  identity: number;
  poison: number;
  /** Whether some poison objects end the process that applies them. */
  endsProcesses: boolean;
}

function planObject(random: Random, { users, identity, poison, endsProcesses }: PlannedMix): PlannedObject {
  const user = () => `u${random.integer(1, users)}`;
  if (random.chance(identity)) {
    if (random.chance(0.1)) return { kind: 'delete', users: [user()] };
    return { kind: 'merge', users: [user(), user()] };
  }
  const object: PlannedObject = { kind: 'event', users: [user()] };
  if (random.chance(poison))
    object.poison = random.pick(['refused', 'refused', endsProcesses ? 'ends the process' : 'slow']);
  if (random.chance(0.02)) object.size = random.pick([1000, 20_000]);
  return object;
}

function planFaults(random: Random, settings: Settings): Fault[] {
  const { length, workers, webs, lanes, lockDuration, kind, hasReplica } = settings;
  const pause = random.pick([300, 1000, 4000]);
  const kinds = [
    'kill',
    'freeze',
    'freeze',
    'cut',
    'storm',
    'move lane',
    'move lane',
    'slow database',
    'clock',
  ] as const;
  // Use few kinds of faults in a run, because combinations of them are then more likely.
  const chosen = kinds.filter(() => random.chance(0.5));
  const faults: Fault[] = [];
  for (let at = random.between(0, pause * 2); at < length; at += random.between(0, pause * 2)) {
    const isWeb = random.chance(0.2);
    const target = isWeb
      ? ({ role: 'web', process: random.integer(0, webs - 1) } as const)
      : ({ role: 'worker', process: random.integer(0, workers - 1) } as const);
    const faultKind = chosen.length === 0 ? 'freeze' : random.pick(chosen);
    const shortly = random.between(1, 200);
    const long = random.between(lockDuration * 0.5, lockDuration * 3);
    if (hasReplica && kind === 'redis' && random.chance(0.15)) faults.push({ at, kind: 'fail over' });
    else if (faultKind === 'kill')
      faults.push({ at, kind: faultKind, ...target, for: random.between(50, 2000) });
    else if (faultKind === 'freeze')
      faults.push({ at, kind: faultKind, ...target, for: random.pick([shortly, long]) });
    else if (faultKind === 'cut')
      faults.push({
        ...{ at, kind: faultKind, ...target, server: random.pick(['queue', 'database'] as const) },
        for: random.pick([0, shortly, long]),
      });
    else if (faultKind === 'storm')
      faults.push({
        ...{ at, kind: faultKind, for: random.between(100, 3000), slow: random.pick([0.05, 0.3]) },
        ...{ slowest: random.pick([100, 800, 3000]), cut: random.pick([0, 0.002, 0.02]) },
      });
    else if (faultKind === 'move lane')
      faults.push({
        ...{ at, kind: faultKind, lane: random.integer(0, lanes - 1), to: random.integer(0, workers - 1) },
        endsLease: random.chance(0.6),
      });
    else if (faultKind === 'slow database')
      faults.push({ at, kind: faultKind, for: random.between(200, 4000), factor: random.pick([3, 20]) });
    else faults.push({ at, kind: 'clock', ...target, by: random.pick([-3_600_000, -50, 50, 3_600_000]) });
  }
  return faults;
}

import { CALM, type Weather } from './link.ts';
import {
  type Fault,
  type Plan,
  type PlannedObject,
  type PlannedRequest,
  planSizes,
  type Role,
  type Settings,
} from './plan.ts';
import { Random } from './random.ts';

/** Creates the plan of a seed for a simulation with a real Postgres. It has less work, more time and all kinds of objects. */
export function postgresPlanOf(seed: number): Plan {
  const random = new Random(seed).fork('plan with postgres');
  const settings = { ...settingsOf(random), ...planSizes(random.fork('sizes')) };
  return {
    seed,
    settings,
    requests: planRequests(random.fork('requests'), settings),
    faults: random.chance(0.1) ? [] : planFaults(random.fork('faults'), settings),
  };
}

const WEATHER: readonly Weather[] = [
  CALM,
  CALM,
  { slow: 0.2, slowest: 20, cut: 0 },
  { slow: 0.1, slowest: 100, cut: 0 },
];

function settingsOf(random: Random): Settings {
  const kind = random.pick(['redis', 'postgres'] as const);
  const lockDuration = random.pick([1000, 3000, 20_000]);
  const workspaces = random.integer(1, 3);
  const numbers = Array.from({ length: workspaces }, (_, number) => number);
  return {
    kind,
    lanes: random.pick([1, 2, 4]),
    workers: random.integer(1, 3),
    webs: 1,
    worksEverything: random.chance(0.4),
    lockDuration,
    stalledInterval: random.pick([500, Math.min(5000, lockDuration)]),
    perObject: numbers.map(() => random.pick([0.05, 0.5, 5])),
    length: random.pick([10_000, 20_000, 40_000]),
    hasReplica: kind === 'redis' && random.chance(0.2),
    weather: random.pick(WEATHER),
    postgres: { syncs: random.integer(1, 2), streamed: numbers.filter(() => random.chance(0.6)) },
  };
}

/** Numbers of users and aliases, and probabilities of the kinds of objects. */
interface Mix {
  users: number;
  aliases: number;
  /** Probability that an object is an identify or a merge. */
  identity: number;
  deletes: number;
  poison: number;
  large: number;
}

function planRequests(random: Random, { perObject, length }: Settings): PlannedRequest[] {
  const requests: PlannedRequest[] = [];
  const mix: Mix = {
    users: random.pick([2, 4, 12]),
    aliases: random.pick([1, 3]),
    identity: random.pick([0, 0.05, 0.25]),
    deletes: random.pick([0, 0.02, 0.1]),
    poison: random.pick([0, 0, 0.02]),
    large: random.pick([0, 0.02]),
  };
  const clients = random.integer(2, 6);
  const noisy = random.chance(0.3) ? 0 : undefined;
  for (let client = 0; client < clients; client++) {
    const workspace = random.integer(0, perObject.length - 1);
    const isNoisy = client === noisy;
    const pause = isNoisy ? random.between(50, 200) : random.between(200, 2000);
    const maxObjects = isNoisy ? random.pick([10, 40]) : random.pick([1, 3, 8]);
    const isRepeated = random.chance(0.4);
    let objectsLeft = 300;
    for (
      let at = random.between(0, pause * 2);
      at < length && objectsLeft > 0;
      at += random.between(0, pause * 2)
    ) {
      const count = random.integer(1, maxObjects);
      objectsLeft -= count;
      requests.push({
        ...{ at, client, workspace, isRepeated },
        objects: Array.from({ length: count }, () => planObject(random, mix)),
      });
    }
  }
  return requests.sort((one, other) => one.at - other.at);
}

function planObject(random: Random, mix: Mix): PlannedObject {
  const user = () => `u${random.integer(1, mix.users)}`;
  const alias = () => `a${random.integer(1, mix.aliases)}`;
  if (random.chance(mix.deletes)) return { kind: 'delete', users: [user()] };
  if (random.chance(mix.identity)) {
    if (random.chance(0.4)) return { kind: 'identify', users: [user()], alias: alias() };
    return { kind: 'merge', users: [user(), user()] };
  }
  const isByAlias = mix.identity > 0 && random.chance(0.15);
  const object: PlannedObject = {
    kind: random.pick(['event', 'event', 'attributes', 'attributes', 'purchase'] as const),
    ...(isByAlias ? { users: [], alias: alias() } : { users: [user()] }),
  };
  if (random.chance(mix.poison)) object.poison = random.pick(['refused', 'refused', 'slow'] as const);
  if (object.kind === 'event' && random.chance(mix.large)) object.size = random.pick([1000, 20_000]);
  return object;
}

const KINDS = [
  'kill',
  'freeze',
  'cut',
  'storm',
  'move lane',
  'slow database',
  'clock',
  'end sessions',
  'destination fails',
  'replay dead letters',
] as const;

function planFaults(random: Random, settings: Settings): Fault[] {
  const { length, lanes, workers, lockDuration, hasReplica } = settings;
  const pause = random.pick([500, 2000, 5000]);
  const chosen = KINDS.filter(() => random.chance(0.5));
  if (chosen.length === 0) chosen.push('kill');
  const faults: Fault[] = [];
  for (let at = random.between(0, pause * 2); at < length; at += random.between(0, pause * 2)) {
    if (hasReplica && random.chance(0.1)) faults.push({ at, kind: 'fail over' });
    const target = targetOf(random, settings);
    const shortly = random.between(1, 200);
    const long = random.between(lockDuration * 0.5, Math.min(40_000, lockDuration * 3));
    const faultKind = random.pick(chosen);
    switch (faultKind) {
      case 'kill':
        faults.push({ at, kind: faultKind, ...target, for: random.between(50, 2000) });
        break;
      case 'freeze':
        faults.push({ at, kind: faultKind, ...target, for: random.pick([shortly, long]) });
        break;
      case 'cut': {
        const servers =
          target.role === 'sync' ? (['database', 'receiver'] as const) : (['queue', 'database'] as const);
        faults.push({
          ...{ at, kind: faultKind, ...target, server: random.pick(servers) },
          for: random.pick([0, shortly, long]),
        });
        break;
      }
      case 'storm':
        faults.push({
          ...{ at, kind: faultKind, for: random.between(100, 3000), slow: random.pick([0.05, 0.3]) },
          ...{ slowest: random.pick([100, 800, 3000]), cut: random.pick([0, 0.005, 0.02]) },
        });
        break;
      case 'move lane':
        faults.push({
          ...{ at, kind: faultKind, lane: random.integer(0, lanes - 1), to: random.integer(0, workers - 1) },
          endsLease: random.chance(0.6),
        });
        break;
      case 'slow database':
        faults.push({ at, kind: faultKind, for: random.between(200, 4000), factor: random.pick([3, 20]) });
        break;
      case 'clock':
        faults.push({ at, kind: faultKind, ...target, by: random.pick([-3_600_000, -50, 50, 3_600_000]) });
        break;
      case 'end sessions':
        faults.push({ at, kind: faultKind, ...target });
        break;
      case 'destination fails':
        faults.push({ at, kind: faultKind, for: random.between(100, 5000), chance: random.pick([0.2, 1]) });
        break;
      case 'replay dead letters':
        faults.push({ at, kind: faultKind, process: random.integer(0, workers - 1) });
        break;
    }
  }
  return faults;
}

function targetOf(random: Random, { workers, webs, postgres }: Settings): { role: Role; process: number } {
  const role = random.pick(['worker', 'worker', 'worker', 'sync', 'web'] as const);
  const count = { worker: workers, web: webs, sync: postgres?.syncs ?? 1 }[role];
  return { role, process: random.integer(0, count - 1) };
}

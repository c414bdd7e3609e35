import { type CallFrame, nameFrame, type Origin } from './frame-name.ts';

/**
 * A profile of `node --cpu-prof`: one node per stack, and samples of the nodes. Times are in microseconds.
 */
export interface CpuProfile {
  nodes: { id: number; callFrame: CallFrame; children?: number[] }[];
  /** Time on the clock of `process.hrtime()`. */
  startTime: number;
  /** Ids of nodes. */
  samples: number[];
  /** Time between each sample and the previous one; the first value is the time since `startTime`. */
  timeDeltas: number[];
}

/** A function in the context of its callers, and the functions that it called. Times are in microseconds. */
export interface Frame {
  name: string;
  origin: Origin;
  /** Time including the called functions. */
  total: number;
  self: number;
  children: Map<string, Frame>;
}

/** A time range on the clock of `process.hrtime()`, in microseconds. */
export interface Span {
  from: number;
  to: number;
}

/** Frames of V8 for idle time and unknown time. */
const IDLE = new Set(['(idle)', '(root)']);

/**
 * Sums the samples by stack. Idle time is omitted, and so are samples outside of `span`, which are the start,
 * the warm-up and the end of a process.
 *
 * @returns the processor time of all stacks, as the caller of the outermost frames
 * @throws {Error} if the process was idle in that time
 */
export function sumStacks(profile: CpuProfile, span?: Span): Frame {
  const root = newFrame('all', 'engine');
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const callers = new Map(
    profile.nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])),
  );
  let at = profile.startTime;
  profile.samples.forEach((id, index) => {
    at += profile.timeDeltas[index]!;
    // A sample represents the time until the next sample.
    const microseconds = Math.max(0, profile.timeDeltas[index + 1] ?? 0);
    if (span && (at < span.from || at > span.to)) return;
    const stack = [];
    for (let node = nodes.get(id); node; node = nodes.get(callers.get(node.id)!)) stack.push(node.callFrame);
    if (!IDLE.has(stack[0]!.functionName)) add(root, stack.reverse(), microseconds);
  });
  if (root.total === 0) throw new Error('the profile has no sample of work in that time');
  return root;
}

function add(root: Frame, stack: CallFrame[], microseconds: number): void {
  let frame = root;
  frame.total += microseconds;
  for (const callFrame of stack) {
    if (IDLE.has(callFrame.functionName)) continue;
    const { name, origin } = nameFrame(callFrame);
    let child = frame.children.get(name);
    if (!child) {
      child = newFrame(name, origin);
      frame.children.set(name, child);
    }
    child.total += microseconds;
    frame = child;
  }
  frame.self += microseconds;
}

function newFrame(name: string, origin: Origin): Frame {
  return { name, origin, total: 0, self: 0, children: new Map() };
}

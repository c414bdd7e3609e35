import { type CallFrame, nameFrame, type Origin } from './frame-name.ts';

/** What V8 writes for `node --cpu-prof`: one node per stack, and samples of them. Times in microseconds. */
export interface CpuProfile {
  nodes: { id: number; callFrame: CallFrame; children?: number[] }[];
  /** By the clock of `process.hrtime()`. */
  startTime: number;
  /** Ids of nodes. */
  samples: number[];
  /** Before each sample, since the one before; the first since `startTime`. */
  timeDeltas: number[];
}

/** A function as it was called by the frames above it, and what it called. Times in microseconds. */
export interface Frame {
  name: string;
  origin: Origin;
  /** With what it called. */
  total: number;
  self: number;
  children: Map<string, Frame>;
}

/** A stretch of time by the clock of `process.hrtime()`, in microseconds. */
export interface Span {
  from: number;
  to: number;
}

/** Frames by which V8 says that a process did nothing, or that it cannot tell. */
const IDLE = new Set(['(idle)', '(root)']);

/**
 * Adds the samples up by stack. Idle time is left out, and what lies outside of `span`: the start, the warm-up and
 * the end of a process.
 *
 * @returns the processor time of all stacks, as the caller of the outermost frames
 * @throws {Error} when the process did nothing then
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
    // A sample stands for the time until the next one.
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

/**
 * Request batching: calls that come while one is under way share the next, so that a thousand at once are a few. The first
 * waits for those of the present turn of the event loop.
 *
 * @param callAll answers for each of what was asked, in its order
 * @param most calls in one at most
 * @returns asks; rejects as the call does that it would have been in, or that it waited behind
 */
export function together<Asked, Answer>(
  callAll: (asked: Asked[]) => Promise<Answer[]>,
  most: number,
): (asked: Asked) => Promise<Answer> {
  interface Waiting {
    asked: Asked;
    resolve(answer: Answer): void;
    reject(error: Error): void;
  }
  let waiting: Waiting[] = [];
  let isRunning = false;

  async function run(): Promise<void> {
    isRunning = true;
    await undefined;
    while (waiting.length > 0) {
      const taken = waiting.splice(0, most);
      try {
        const answers = await callAll(taken.map(({ asked }) => asked));
        for (const [index, { resolve }] of taken.entries()) resolve(answers[index]!);
      } catch (error) {
        // What waits behind it would wait as long again; it is refused with it.
        const refused = [...taken, ...waiting];
        waiting = [];
        for (const { reject } of refused) reject(error as Error);
      }
    }
    isRunning = false;
  }

  return (asked) =>
    new Promise((resolve, reject) => {
      waiting.push({ asked, resolve, reject });
      if (!isRunning) void run();
    });
}

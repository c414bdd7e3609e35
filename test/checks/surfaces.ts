import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { createVisitor } from '../board/browser-session.ts';
import type { Fleet, Member } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';

export const CONSOLE = { BOARD_USER: 'admin', BOARD_PASSWORD: 'correct horse battery' };

/** Excludes slow stores, because a busy machine makes them slow without a fault. */
const isOfDrill = (sentence: string) => !/^(?:Postgres|Redis) answers in /.test(sentence);

/** A problem in the list of the console. */
export interface ListedProblem {
  sentence: string;
  link: string;
}

/** Reads the problems of a fleet from the console, the command line and /readyz. */
export function surfacesOf(fleet: Fleet, board: Member) {
  const visitor = createVisitor({ url: `http://127.0.0.1:${board.port}` });
  const run = async (...words: string[]) => {
    const { stdout, stderr } = await spawnPenstock([...words, '--json'], fleet.env);
    return stdout === '' ? { problems: [{ sentence: stderr }] } : JSON.parse(stdout);
  };
  const problems = async (): Promise<ListedProblem[]> =>
    problemsIn(await page()).filter(({ sentence }) => isOfDrill(sentence));

  async function page(): Promise<string> {
    const answer = await visitor.get('/', { accept: 'text/html' });
    return answer.text();
  }

  const surfaces = {
    signIn: () => visitor.signIn(CONSOLE.BOARD_USER, CONSOLE.BOARD_PASSWORD),
    page,
    problems,
    console: async () => (await problems()).map(({ sentence }) => sentence),
    doctor: async (): Promise<string[]> =>
      ((await run('doctor')).findings ?? [])
        .map(({ finding }: { finding: string }) => finding)
        .filter(isOfDrill),
    status: async (): Promise<string[]> =>
      ((await run('status')).problems ?? [])
        .map(({ sentence }: { sentence: string }) => sentence)
        .filter(isOfDrill),
    async readyz({ port }: Member): Promise<string[]> {
      const { problems: found = [] } = (await (await fetch(`http://127.0.0.1:${port}/readyz`)).json()) as {
        problems?: { sentence: string }[];
      };
      return found.map(({ sentence }) => sentence);
    },
    /** Resolves when the console lists no problem. */
    untilNormal: () =>
      waitUntil(async () => (await page()).includes('<h1>Health') && (await problems()).length === 0, {
        ...{ what: 'a fleet without problems', deadline: 60_000 },
        explain: async () => JSON.stringify(await problems()),
      }),
    /** Resolves when console, doctor and status all list a matching sentence. */
    everywhere: (pattern: RegExp, deadline?: number): Promise<unknown> =>
      Promise.all(
        (['console', 'doctor', 'status'] as const).map((one) => surfaces.until(one, pattern, deadline)),
      ),
    /** Resolves when none of them lists a matching sentence. */
    async nowhere(pattern: RegExp): Promise<void> {
      for (const one of ['console', 'doctor', 'status'] as const) {
        let last: string[] = [];
        const isGone = async () => {
          last = (await surfaces[one]()).filter((sentence) => pattern.test(sentence));
          return last.length === 0;
        };
        await waitUntil(isGone, {
          ...{ what: `no ${pattern} in ${one}`, deadline: 5000, explain: async () => JSON.stringify(last) },
        });
      }
    },
    /** Resolves when one surface lists a matching sentence. */
    until: (surface: 'console' | 'doctor' | 'status', pattern: RegExp, deadline = 30_000) => {
      let last: string[] = [];
      return waitUntil(
        async () => {
          last = await surfaces[surface]();
          return last.find((sentence) => pattern.test(sentence));
        },
        {
          ...{ what: `${pattern} in ${surface}`, deadline, fleeting: surface === 'console' },
          explain: async () => JSON.stringify(last),
        },
      );
    },
  };
  return surfaces;
}

/** Returns the problems in the HTML of the health page, in order. */
export function problemsIn(markup: string): ListedProblem[] {
  return [...markup.matchAll(/<li class="finding[^>]*>(.*?)<\/li>/gs)].map(([, item]) => ({
    sentence: textOf(/<strong>(.*?)<\/strong>/s.exec(item!)?.[1] ?? ''),
    link: /<a href="([^"]*)"/.exec(item!)?.[1] ?? '',
  }));
}

const textOf = (markup: string) =>
  markup
    .replace(/<[^>]*>/g, '')
    .replaceAll('&#39;', "'")
    .replaceAll('&quot;', '"')
    .replaceAll('&gt;', '>')
    .replaceAll('&lt;', '<')
    .replaceAll('&amp;', '&');

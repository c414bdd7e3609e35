import { availableParallelism, loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
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

/** Places that name a problem. `readyz` and `log` are those of the first web process. */
export const places = ['console', 'doctor', 'status', 'readyz', 'log'] as const;
export type Place = (typeof places)[number];

/** Seconds from a fault to the first correct sentence in each place. */
export type Measured = Partial<Record<Place, number>>;

/** Seconds that a busy machine may add to a required time: 1, and 1 for each runnable thread per core, at most 15. */
export const slack = () => 1 + Math.min(14, loadavg()[0]! / availableParallelism());

interface Fault {
  /** Time of the fault in `Date.now()` milliseconds. */
  from: number;
  /** Required seconds; for some places other ones. */
  within: number;
  but?: Measured;
  /** Patterns of places that use other words. */
  words?: Partial<Record<Place, RegExp>>;
  /** Places that do not name the problem. */
  except?: readonly Place[];
  /** Receives the measured seconds for the report of the test. */
  annotate(message: string): unknown;
}

const wait = { deadline: 90_000, fleeting: true };

/** Reads the problems of a fleet from the console, the command line, /readyz and the log. */
export function surfacesOf(fleet: Fleet, board: Member) {
  const visitor = createVisitor({ url: `http://127.0.0.1:${board.port}` });
  const run = async (...words: string[]) => {
    const { stdout, stderr } = await spawnPenstock([...words, '--json'], fleet.env);
    return stdout === '' ? { problems: [{ sentence: stderr }] } : JSON.parse(stdout);
  };
  const problems = async (): Promise<ListedProblem[]> =>
    problemsIn(await page()).filter(({ sentence }) => isOfDrill(sentence));

  const web = () => fleet.edges[0]!;
  const starts = ({ log }: Member) => log.filter(({ msg }) => msg === 'problem began');

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
    async readyz({ port }: Member = web()): Promise<string[]> {
      const { problems: found = [] } = (await (await fetch(`http://127.0.0.1:${port}/readyz`)).json()) as {
        problems?: { sentence: string }[];
      };
      return found.map(({ sentence }) => sentence).filter(isOfDrill);
    },
    /** Sentences of the problems whose start the web process logged. */
    log: async (): Promise<string[]> => starts(web()).map(({ problem }) => String(problem)),
    /** Resolves when the web process has logged the end of a matching problem. */
    ended: (pattern: RegExp) =>
      waitUntil(
        () => web().log.find(({ msg, problem }) => msg === 'problem ended' && pattern.test(String(problem))),
        { what: `the logged end of ${pattern}`, explain: async () => JSON.stringify(web().log.slice(-20)) },
      ),
    /**
     * Measures the time from a fault until each place names it. A command counts from its start, because a busy machine
     * needs seconds to start it. Commands start when the console names the fault.
     * @throws {Error} if a place takes longer than required, with an allowance for the load of the machine
     */
    async measure(
      pattern: RegExp,
      { from, within, but = {}, words = {}, except = [], annotate }: Fault,
    ): Promise<Measured> {
      const allowed = slack();
      const measured: Measured = {};
      const matchesIn = (place: Place) => (sentence: string) => (words[place] ?? pattern).test(sentence);
      const until = async (place: Place, read: () => Promise<number | undefined>) => {
        if (except.includes(place)) return;
        const at = await waitUntil(read, {
          ...{ ...wait, what: `${pattern} in ${place}` },
          explain: async () => JSON.stringify([measured, await surfaces[place]()]),
        });
        measured[place] = Math.round((at - from) / 100) / 10;
      };
      const byResponse = (place: 'console' | 'readyz') => async () =>
        (await surfaces[place]()).some(matchesIn(place)) ? Date.now() : undefined;
      const byStart = (command: 'doctor' | 'status') => async () => {
        const startedAt = Date.now();
        return (await surfaces[command]()).some(matchesIn(command)) ? startedAt : undefined;
      };
      const byLine = async () => {
        const line = starts(web()).find(
          ({ time, problem }) => matchesIn('log')(String(problem)) && Date.parse(String(time)) >= from,
        );
        return line && Date.parse(String(line.time));
      };
      await Promise.all([
        until('console', byResponse('console')).then(() =>
          Promise.all([until('doctor', byStart('doctor')), until('status', byStart('status'))]),
        ),
        until('readyz', byResponse('readyz')),
        until('log', byLine),
      ]);
      const most = Math.max(allowed, slack());
      await annotate(`${pattern}: ${JSON.stringify({ ...measured, slack: Math.round(10 * most) / 10 })}`);
      for (const [place, seconds] of Object.entries(measured))
        expect(seconds, `${place}: ${JSON.stringify(measured)}`).toBeLessThanOrEqual(
          (but[place as Place] ?? within) + most,
        );
      return measured;
    },
    /** Reads the console for some milliseconds, and returns every sentence that it listed. */
    async watch(milliseconds: number): Promise<string[]> {
      const seen = new Set<string>();
      const end = performance.now() + milliseconds;
      while (performance.now() < end) {
        for (const sentence of await surfaces.console()) seen.add(sentence);
        await sleep(40);
      }
      return [...seen];
    },
    /** Resolves when the console lists no problem. */
    untilNormal: () =>
      waitUntil(async () => (await page()).includes('<h1>Health') && (await problems()).length === 0, {
        ...{ what: 'a fleet without problems', deadline: 60_000 },
        explain: async () => JSON.stringify(await problems()),
      }),
    /** Resolves when each place has a matching sentence. */
    everywhere: (pattern: RegExp, except: readonly Place[] = []): Promise<unknown> =>
      Promise.all(
        places.filter((one) => !except.includes(one)).map((one) => surfaces.until(one, pattern, 60_000)),
      ),
    /** Resolves when console, doctor, status and /readyz have no matching sentence. */
    async nowhere(pattern: RegExp): Promise<void> {
      for (const one of places.filter((place) => place !== 'log')) {
        let last: string[] = [];
        const isGone = async () => {
          last = (await surfaces[one]()).filter((sentence) => pattern.test(sentence));
          return last.length === 0;
        };
        await waitUntil(isGone, {
          ...{ what: `no ${pattern} in ${one}`, deadline: 15_000, explain: async () => JSON.stringify(last) },
        });
      }
    },
    /** Resolves when one place has a matching sentence. */
    until: (surface: Place, pattern: RegExp, deadline = 30_000) => {
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

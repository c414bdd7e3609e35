import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';

/** A command of a guide with the JSON that the guide shows as its answer. */
export interface Step {
  command: string;
  /** Matches any text where the guide has `…`. Absent if the guide shows no answer. */
  answer?: unknown;
}

/** Reads the shell blocks of a guide. A comment that begins with `{` is the answer of the command above. */
export function stepsOf(name: string): Step[] {
  const text = readFileSync(path.join(packageRoot, 'docs', `${name}.md`), 'utf8');
  return [...text.matchAll(/^( *)```sh\n(.*?)^\1```$/gms)].flatMap(([, indent, block]) => {
    const lines = block!.split('\n').map((line) => line.slice(indent!.length));
    // A command continues while its quotes are open or its line ends with a backslash; the answer is below
    // it.
    return lines
      .join('\n')
      .split(/\n(?=(?:curl|npx|npm|export) )|\n\n/)
      .filter((part) => part.trim() !== '')
      .map((part) => {
        const [command, ...shown] = part.split(/^# /m);
        if (shown.length === 0) return { command: command!.trim() };
        const json = shown.map((line) => line.trim()).join('');
        return { command: command!.trim(), answer: JSON.parse(json, (_, value) => anyText(value)) };
      });
  });
}

const anyText = (value: unknown) => (value === '…' ? expect.any(String) : value);

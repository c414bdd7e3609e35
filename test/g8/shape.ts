import type { Grown } from './grown.ts';

/** Input for building shapes. */
export interface Making {
  grown: Grown;
  /** Maximum bytes of a body. */
  bytes: number;
  random(): number;
}

/** An expensive request to one operation. Bodies are JSON texts, because building objects first would take long. */
export interface Shape {
  /** Name: the cause of the cost. */
  of: string;
  body?: string;
  params?: Record<string, string>;
  query?: string;
  headers?: Record<string, string>;
}

export const range = (length: number) => Array.from({ length }, (_, index) => index);
export const json = JSON.stringify;
export const list = (texts: string[]) => `[${texts.join()}]`;
export const opposite = [['most_recently_updated'], ['least_recently_updated']] as const;

/** Builds an array of `count` objects that share the bytes of the body equally. */
export const full = (count: number, bytes: number, make: (index: number, share: number) => string) => {
  const share = Math.floor((bytes - 200) / count) - 1;
  return list(range(count).map((index) => make(index, share)));
};

/** Joins as many parts as fit into `share` characters, at least one and at most `most`. */
export const parts = (share: number, most: number, make: (index: number) => string) => {
  const texts: string[] = [];
  for (let left = share, index = 0; index < most; index++) {
    const text = make(index);
    left -= text.length + 1;
    if (left < 0 && index > 0) break;
    texts.push(text);
  }
  return texts.join();
};

export const padding = (share: number) => ' '.repeat(Math.max(0, share));

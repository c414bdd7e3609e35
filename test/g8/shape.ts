import type { Grown } from './grown.ts';

/** What shapes are made from. */
export interface Making {
  grown: Grown;
  /** Most bytes of a body. */
  bytes: number;
  random(): number;
}

/** What is sent to one operation. Bodies are texts of JSON: to make objects of them first would take long. */
export interface Shape {
  /** What makes it bad. */
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

/** As many objects as an array may have, each of its share of the bytes. */
export const full = (count: number, bytes: number, make: (index: number, share: number) => string) => {
  const share = Math.floor((bytes - 200) / count) - 1;
  return list(range(count).map((index) => make(index, share)));
};

/** As many parts as fit; at least one. */
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

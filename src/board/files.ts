import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Response, Router } from 'express';
import express from 'express';
import { packageRoot } from '../platform/files.ts';

/** Our own files, which is all that a page asks for. Beside the sources, not compiled. */
const types = { 'console.css': 'text/css; charset=utf-8', 'console.js': 'text/javascript; charset=utf-8' };

type Name = keyof typeof types;

const names = Object.keys(types) as Name[];

const files = new Map(
  names.map((name) => {
    const body = readFileSync(path.join(packageRoot, 'src/board/assets', name));
    const version = createHash('sha256').update(body).digest('hex').slice(0, 12);
    return [name, { body, version }];
  }),
);

/** Where a page finds the file: another content has another path, so that browsers may keep it for ever. */
export function assetPath(name: Name): string {
  return `/assets/${files.get(name)!.version}/${name}`;
}

/** Serves them to everybody: the form to sign in needs them, and they tell nothing. */
export function createAssets(): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  for (const name of names)
    router.get(assetPath(name).slice('/assets'.length), (_request, response) => {
      response.set({ 'Content-Type': types[name], 'Cache-Control': 'public, max-age=31536000, immutable' });
      response.send(files.get(name)!.body);
    });
  return router;
}

/** A file of the console, as it is made. */
export interface FileReply {
  file: string;
  type: string;
  chunks: AsyncIterable<string> | Iterable<string>;
}

/** Files that are on their way at once: each reads the store page by page, and other pages need it, too. */
const MOST_FILES = 2;

let sending = 0;

/** Sends a file, unless too many are on their way. @returns whether it was sent */
export async function download(response: Response, reply: FileReply): Promise<boolean> {
  if (sending >= MOST_FILES) return false;
  sending++;
  try {
    await send(response, reply);
    return true;
  } finally {
    sending--;
  }
}

/** Piece by piece, as fast as it is taken. */
async function send(response: Response, { file, type, chunks }: FileReply): Promise<void> {
  response.set('Content-Type', type).attachment(file);
  response.set('Content-Type', type);
  if (response.req.method !== 'HEAD')
    for await (const chunk of chunks) {
      if (response.destroyed) return;
      if (!response.write(chunk)) await writable(response);
    }
  response.end();
}

/** Milliseconds in which a receiver has to take what is buffered, 64 KiB at most. A slower one would keep its place. */
const PATIENCE = 10_000;

/** Resolves when more can be written, or when the receiver is gone or too slow, whose connection is closed. */
function writable(response: Response): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => response.destroy(), PATIENCE);
    const go = () => {
      clearTimeout(timer);
      response.off('drain', go).off('close', go);
      resolve();
    };
    response.on('drain', go).on('close', go);
  });
}

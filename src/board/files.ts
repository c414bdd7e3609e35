import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Response, Router } from 'express';
import express from 'express';
import { packageRoot } from '../platform/files.ts';

/** Asset files of the console, read from the source folder. Pages load no other files. */
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

/** Returns the URL path of an asset. It contains a hash of the content, so that browsers can cache it indefinitely. */
export function assetPath(name: Name): string {
  return `/assets/${files.get(name)!.version}/${name}`;
}

/** Serves the assets without a session. The sign-in form needs them, and they contain no private data. */
export function createAssets(): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  for (const name of names)
    router.get(assetPath(name).slice('/assets'.length), (_request, response) => {
      response.set({ 'Content-Type': types[name], 'Cache-Control': 'public, max-age=31536000, immutable' });
      response.send(files.get(name)!.body);
    });
  return router;
}

/** A file that is generated while it is sent. */
export interface FileReply {
  file: string;
  type: string;
  chunks: AsyncIterable<string> | Iterable<string>;
}

/** Maximum number of concurrent downloads. Each reads the store page by page, and other pages need the store, too. */
const MAX_FILES = 2;

let sending = 0;

/**
 * Sends a file, unless too many downloads are running.
 * @returns whether it was sent
 */
export async function download(response: Response, reply: FileReply): Promise<boolean> {
  if (sending >= MAX_FILES) return false;
  sending++;
  try {
    await send(response, reply);
    return true;
  } finally {
    sending--;
  }
}

/** Sends the chunks as fast as the client reads them. */
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

/**
 * Milliseconds within which a client has to read the buffered data (at most 64 KiB). A slower client would block a
 * download slot.
 */
const PATIENCE = 10_000;

/**
 * Resolves when the response can be written again or the client has disconnected. Disconnects a client that is too
 * slow.
 */
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

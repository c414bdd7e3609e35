import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Router } from 'express';
import express from 'express';
import { packageRoot } from '../platform/package-root.ts';

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

import type { Response } from 'express';

/** A file of the console, as it is made. */
export interface FileReply {
  file: string;
  type: string;
  chunks: AsyncIterable<string> | Iterable<string>;
}

/** Files that are on their way at once: each reads the store page by page, and other pages need it, too. */
const MOST_FILES = 2;

let files = 0;

/** Sends a file, unless too many are on their way. @returns whether it was sent */
export async function download(response: Response, reply: FileReply): Promise<boolean> {
  if (files >= MOST_FILES) return false;
  files++;
  try {
    await send(response, reply);
    return true;
  } finally {
    files--;
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

/** Resolves when more can be written, or nobody takes it any more. */
function writable(response: Response): Promise<void> {
  return new Promise((resolve) => {
    const go = () => {
      response.off('drain', go).off('close', go);
      resolve();
    };
    response.on('drain', go).on('close', go);
  });
}

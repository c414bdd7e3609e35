import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Request, Response } from 'express';

const pack = promisify(gzip);

/** Bytes up to which a document is not compressed: its headers take as much. */
const SMALL = 1024;

export interface DocumentOptions {
  /** Value of Content-Type. */
  type: string;
  /** Value of Cache-Control. */
  cacheControl: string;
  /** Whether gzip would not make it smaller, for example because it is a PNG. */
  isCompressed?: boolean;
}

/**
 * A document that is public and the same for all clients. Its bytes and its gzip form are created once and shared by
 * all responses, so that a receiver that does not read uses no additional memory.
 */
export class PublicDocument {
  readonly #body: Buffer;
  readonly #etag: string;
  readonly #options: DocumentOptions;
  #packed: Promise<Buffer> | undefined;

  constructor(body: Buffer, options: DocumentOptions) {
    this.#body = body;
    this.#options = options;
    this.#etag = createHash('sha256').update(body).digest('hex').slice(0, 16);
  }

  /** Answers with the document, or with 304 if the client has it. */
  async send(request: Request, response: Response): Promise<void> {
    const { type, cacheControl, isCompressed = false } = this.#options;
    const isPacked =
      !isCompressed && this.#body.length > SMALL && request.acceptsEncodings('gzip') === 'gzip';
    response.set({
      'Content-Type': type,
      'Cache-Control': cacheControl,
      // Weak: the gzip form has the same content.
      ETag: `W/"${this.#etag}"`,
      ...(!isCompressed && { Vary: 'Accept-Encoding' }),
    });
    if (request.fresh) {
      response.status(304).end();
      return;
    }
    const body = isPacked ? await this.#gzip() : this.#body;
    if (isPacked) response.set('Content-Encoding', 'gzip');
    response.set('Content-Length', String(body.length));
    response.end(body);
  }

  #gzip(): Promise<Buffer> {
    this.#packed ??= pack(this.#body).catch((error) => {
      this.#packed = undefined;
      throw error;
    });
    return this.#packed;
  }
}

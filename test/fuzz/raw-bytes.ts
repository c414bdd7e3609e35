import fc from 'fast-check';
import type { Doors, Shot } from './requests.ts';

/** Generates bytes that are not HTTP, or almost HTTP. */
export function rawBytes({ key }: Doors): fc.Arbitrary<Shot> {
  const admission = `Authorization: Bearer ${key}\r\n`;
  const json = 'Content-Type: application/json\r\n';
  const post = `POST /users/track HTTP/1.1\r\nHost: a\r\n${admission}${json}`;
  const texts = [
    '\r\n\r\n',
    'GARBAGE\r\n\r\n',
    '\u0000\u0001\u0002',
    'GET / HTTP/9.9\r\n\r\n',
    'GET /\r\n\r\n',
    'GET / HTTP/1.0\r\n\r\n',
    'GET / HTTP/1.1\r\n\r\n',
    'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
    `GET /${'x'.repeat(20_000)} HTTP/1.1\r\nHost: a\r\n\r\n`,
    `GET / HTTP/1.1\r\nHost: a\r\n${'a: b\r\n'.repeat(3000)}\r\n`,
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    `${post}Content-Length: -1\r\n\r\n`,
    `${post}Content-Length: 1e3\r\n\r\n`,
    `${post}Content-Length: 99999999999999999999\r\n\r\n{}`,
    `${post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`,
    `${post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    `${post}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`,
    `${post}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}`,
    `${post}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
    `${post}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nTrailer: x\r\n\r\n`,
    `${post}Content-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\nHost: a\r\n\r\n`,
    `${post}Content-Length: 100\r\n\r\n{"a`,
    `${post} folded: x\r\nContent-Length: 2\r\n\r\n{}`,
    `${post}Bad Name: x\r\n\r\n`,
    `${post}X: a\u0000b\r\n\r\n`,
    `${post}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
    'CONNECT other.example:443 HTTP/1.1\r\nHost: a\r\n\r\n',
    'OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n',
    'GET /a b HTTP/1.1\r\nHost: a\r\n\r\n',
    'GET /\u00ff\u00fe HTTP/1.1\r\nHost: a\r\n\r\n',
  ];
  return fc
    .oneof(
      { weight: 4, arbitrary: fc.constantFrom(...texts).map((text) => Buffer.from(text, 'latin1')) },
      {
        weight: 1,
        arbitrary: fc.uint8Array({ minLength: 1, maxLength: 2000 }).map((noise) => Buffer.from(noise)),
      },
      {
        weight: 2,
        arbitrary: fc.tuple(fc.constantFrom(...texts), fc.nat(200), fc.nat(255)).map(([text, at, byte]) => {
          const bytes = Buffer.from(text, 'latin1');
          bytes[at % bytes.length] = byte;
          return bytes;
        }),
      },
    )
    .map((bytes) => ({ aim: 'raw bytes', bytes, alone: true }));
}

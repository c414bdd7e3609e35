import { postHead } from '../load/bodies.ts';
import type { HttpConnection } from '../load/http-connection.ts';
import type { Contender } from './contender.ts';

/** @throws {Error} unless the request is accepted */
export async function post(
  connection: HttpConnection,
  ours: Contender,
  path: string,
  body: object,
): Promise<void> {
  const text = JSON.stringify(body);
  const head = postHead(`${ours.target.host}:${ours.target.port}`, path, ours.key);
  const request = `${head}Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`;
  const { status, body: answer } = await connection.send(Buffer.from(request));
  if (status >= 300) throw new Error(`${path}: ${status} ${answer}`);
}

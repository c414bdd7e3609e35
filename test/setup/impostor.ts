import { randomBytes } from 'node:crypto';
import { createServer } from 'node:net';
import { leaveBehind } from './left-behind.ts';

/** Answers of an impostor to the first message of a client and to later ones; the last answer is repeated. */
type Answers = ((fromClient: Buffer) => Buffer)[];

function message(type: string, ...parts: (Buffer | string | number)[]): Buffer {
  const body = Buffer.concat(
    parts.map((part) => {
      if (typeof part !== 'number') return Buffer.from(part);
      const number = Buffer.alloc(4);
      number.writeInt32BE(part);
      return number;
    }),
  );
  const head = Buffer.alloc(5);
  head.write(type);
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}

const ok = message('R', 0);
const ready = message('Z', 'I');
const oneRow = Buffer.concat([message('C', 'SELECT 1\0'), ready]);
const mechanisms = message('R', 10, 'SCRAM-SHA-256\0\0');
/** Continues the client's nonce, which is possible without the password. */
const challenge = (fromClient: Buffer) => {
  const nonce = /r=([^,]+)/.exec(fromClient.toString('latin1'))?.[1];
  return message('R', 11, `r=${nonce}x,s=${randomBytes(16).toString('base64')},i=4096`);
};
const wrongSignature = message('R', 12, `v=${randomBytes(32).toString('base64')}`);

/** Behavior of a false Postgres that wants the password, or statements without a password. */
export const tricks: Record<string, Answers> = {
  'asks for the password': [() => message('R', 3), () => Buffer.concat([ok, ready]), () => oneRow],
  'asks for its md5': [() => message('R', 5, 'salt'), () => Buffer.concat([ok, ready]), () => oneRow],
  'asks for nothing': [() => Buffer.concat([ok, ready]), () => oneRow],
  'says that it is ready': [() => ready, () => oneRow],
  'has a wrong signature': [
    () => mechanisms,
    challenge,
    () => Buffer.concat([wrongSignature, ok, ready]),
    () => oneRow,
  ],
  'leaves its signature out': [() => mechanisms, challenge, () => Buffer.concat([ok, ready]), () => oneRow],
  'asks for the password after all': [() => mechanisms, challenge, () => message('R', 3), () => ready],
};

/** Starts a false Postgres on loopback; closed at the end. */
export async function startImpostor(answers: Answers, port = 0) {
  const heard: Buffer[] = [];
  const server = createServer((socket) => {
    let answered = 0;
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      heard.push(chunk);
      socket.write(answers[Math.min(answered++, answers.length - 1)]!(chunk));
    });
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  leaveBehind(() => void server.close());
  return {
    port: (server.address() as { port: number }).port,
    /** Returns everything that clients have sent. */
    heard: () => Buffer.concat(heard).toString('latin1'),
  };
}

import { readdirSync, readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { CreateBucketCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { leaveBehind, temporaryFolder } from '../setup/left-behind.ts';

interface S3rver {
  run(callback: (error: Error | null, address: AddressInfo) => void): void;
  close(): Promise<void>;
}
interface S3rverOptions {
  port: number;
  address: string;
  silent: boolean;
  directory: string;
  allowMismatchedSignatures: boolean;
}
/** The package has no types. */
const { default: S3rver } = (await import('@20minutes/s3rver' as string)) as {
  default: new (options: S3rverOptions) => S3rver;
};

const credentials = { access_key_id: 'S3RVER', secret_access_key: 'S3RVER' };

export interface TestS3 {
  endpoint: string;
  credentials: typeof credentials;
  client: S3Client;
  /** Puts a folder's files into a new bucket. @returns its name */
  fill(folder: string, prefix: string): Promise<string>;
}

let running: Promise<TestS3> | undefined;

/** Starts an S3 server on loopback, shared by all tests of a file. */
export function startS3(): Promise<TestS3> {
  if (!running) {
    running = start();
    leaveBehind(() => {
      running = undefined;
    });
  }
  return running;
}

/** Starts a server that accepts no signature (see below); returns its address. */
export async function startStrictS3(): Promise<string> {
  return serve({ allowMismatchedSignatures: false });
}

async function serve(options: { allowMismatchedSignatures: boolean }): Promise<string> {
  const server = new S3rver({
    ...options,
    port: 0,
    address: '127.0.0.1',
    silent: true,
    directory: temporaryFolder('penstock-s3-'),
  });
  const { port } = await new Promise<AddressInfo>((resolve, reject) => {
    server.run((error, address) => (error ? reject(error) : resolve(address)));
  });
  leaveBehind(() => server.close());
  return `http://127.0.0.1:${port}`;
}

async function start(): Promise<TestS3> {
  // The server removes the slash after a bucket's name before it computes the signature, so the signature of
  // a list never matches.
  const endpoint = await serve({ allowMismatchedSignatures: true });
  const client = new S3Client({
    endpoint,
    region: 'eu-central-1',
    forcePathStyle: true,
    credentials: { accessKeyId: credentials.access_key_id, secretAccessKey: credentials.secret_access_key },
  });
  leaveBehind(() => client.destroy());
  let buckets = 0;
  async function fill(folder: string, prefix: string): Promise<string> {
    buckets += 1;
    const bucket = `bucket-${buckets}`;
    await client.send(new CreateBucketCommand({ Bucket: bucket }));
    for (const name of readdirSync(folder)) {
      const Body = readFileSync(path.join(folder, name));
      await client.send(new PutObjectCommand({ Bucket: bucket, Key: prefix + name, Body }));
    }
    return bucket;
  }
  return { endpoint, credentials, client, fill };
}

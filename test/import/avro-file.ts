import { writeFileSync } from 'node:fs';
import { crc32 } from 'node:zlib';
import avsc from 'avsc';
import { fileOf } from './scene.ts';

/** Writes an Avro file as another program would. */
export async function avroOf(schema: object, rows: readonly unknown[], codec = 'deflate'): Promise<string> {
  const file = fileOf('events.avro', '');
  const parseHook = (one: avsc.Schema) => avsc.Type.forSchema(one, { wrapUnions: false });
  const codecs = { ...avsc.streams.BlockEncoder.defaultCodecs(), snappy: packSnappy };
  const options = { parseHook, codec, codecs, blockSize: 4096 };
  const encoder = new avsc.streams.BlockEncoder(schema as avsc.Schema, options);
  const chunks: Buffer[] = [];
  await new Promise((resolve, reject) => {
    encoder.on('data', (chunk: Buffer) => chunks.push(chunk));
    encoder.on('end', resolve).on('error', reject);
    for (const row of rows) encoder.write(row);
    encoder.end();
  });
  writeFileSync(file, Buffer.concat(chunks));
  return file;
}

/** Packs with literals only, which any reader of Snappy accepts, and appends the checksum of Avro. */
function packSnappy(bytes: Buffer, callback: (error: null, packed: Buffer) => void): void {
  const head = Buffer.alloc(3, 0x80);
  head[0] = (bytes.length & 0x7f) | 0x80;
  head[1] = ((bytes.length >> 7) & 0x7f) | 0x80;
  head[2] = bytes.length >> 14;
  const tag = Buffer.from([61 << 2, (bytes.length - 1) & 0xff, (bytes.length - 1) >> 8]);
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(bytes));
  callback(null, Buffer.concat([head, tag, bytes, sum]));
}

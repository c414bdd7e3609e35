/** What cannot be unpacked; the message has no name of the file. */
export class BrokenSnappy extends Error {
  override name = 'BrokenSnappy';
}

/**
 * Unpacks a block of Snappy (its raw format, without frames).
 * @param most bytes that it may have, unpacked
 * @throws {BrokenSnappy}
 */
export function unsnappy(packed: Buffer, most: number): Buffer {
  let at = 0;
  let length = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = packed[at++];
    if (byte === undefined || shift > 28) throw new BrokenSnappy('it has no length');
    length += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) break;
  }
  if (length > most) throw new BrokenSnappy(`it has more than ${most} bytes, unpacked`);
  const unpacked = Buffer.alloc(length);
  let to = 0;

  function little(bytes: number): number {
    if (at + bytes > packed.length) throw new BrokenSnappy('it was cut');
    at += bytes;
    return packed.readUIntLE(at - bytes, bytes);
  }

  function literal(tag: number): void {
    const bytes = (tag < 60 ? tag : little(tag - 59)) + 1;
    if (at + bytes > packed.length || to + bytes > length) throw new BrokenSnappy('it was cut');
    packed.copy(unpacked, to, at, at + bytes);
    at += bytes;
    to += bytes;
  }

  function copy(bytes: number, back: number): void {
    if (back === 0 || back > to || to + bytes > length) throw new BrokenSnappy('it copies what is not there');
    // Source and target may overlap: what was just written is read again.
    if (back >= bytes) unpacked.copy(unpacked, to, to - back, to - back + bytes);
    else for (let place = 0; place < bytes; place++) unpacked[to + place] = unpacked[to - back + place]!;
    to += bytes;
  }

  while (at < packed.length) {
    const tag = packed[at++]!;
    const bytes = (tag >> 2) + 1;
    const kind = tag & 3;
    if (kind === 0) literal(tag >> 2);
    else if (kind === 1) copy(((tag >> 2) & 7) + 4, ((tag >> 5) << 8) | little(1));
    else copy(bytes, little(kind === 2 ? 2 : 4));
  }
  if (to !== length) throw new BrokenSnappy('it has fewer bytes than it says');
  return unpacked;
}

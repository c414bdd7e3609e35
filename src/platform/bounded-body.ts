/** The beginning of a body, up to a limit. */
export interface BoundedBody {
  bytes: Buffer;
  /** Whether the body had no more than that. */
  isWhole: boolean;
}

/**
 * Reads at most `limit` bytes of what another server sends, and ends the connection when there is more. Every answer
 * that is held in memory is read with it: a small packed answer may have gigabytes when it is unpacked.
 */
export async function readUpTo(limit: number, body: AsyncIterable<Uint8Array>): Promise<BoundedBody> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  // Leaving the loop early destroys the stream.
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.length;
    if (length > limit) break;
  }
  return { bytes: Buffer.concat(chunks).subarray(0, limit), isWhole: length <= limit };
}

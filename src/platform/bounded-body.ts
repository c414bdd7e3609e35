/** The beginning of a body, up to a limit. */
interface BoundedBody {
  bytes: Buffer;
  /** Whether the body ended within the limit. */
  isWhole: boolean;
}

/**
 * Reads at most `limit` bytes of a body, and closes its connection when the body is longer. Use it for each
 * response of another server that is held in memory: a few compressed kilobytes can expand to gigabytes.
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

/** The channel on which workers tell each other about fences. */
export const FENCE_CHANNEL = 'penstock_fences';

/** A lane has come to the fence, or, without a lane, the fence is passed. */
export interface FenceNews {
  fence: string;
  lane?: number;
}

/** A notification's payload: the fence's id, and the lane behind a space. */
export function parseFenceNews(payload: string): FenceNews {
  const [fence = '', lane] = payload.split(' ');
  return lane === undefined ? { fence } : { fence, lane: Number(lane) };
}

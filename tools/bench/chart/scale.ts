/** Converts a value to its pixel position on an axis, with the values of the ticks. */
export interface Scale {
  positionOf(value: number): number;
  ticks: number[];
}

/** Creates an axis from 0 to at least `max`; `first` and `last` are the pixels of its ends. */
export function linearScale(max: number, first: number, last: number): Scale {
  const step = niceStep(max / 6);
  const end = Math.ceil(max / step) * step;
  return {
    positionOf: (value) => first + (value / end) * (last - first),
    ticks: Array.from({ length: Math.round(end / step) + 1 }, (_, index) => index * step),
  };
}

/**
 * Creates a logarithmic axis over whole powers of ten that contain the values, which must be positive, with
 * ticks at 1, 2 and 5 of each power.
 */
export function logScale(values: number[], first: number, last: number): Scale {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  const powers = Array.from({ length: high - low }, (_, index) => low + index);
  return {
    positionOf: (value) => first + ((Math.log10(value) - low) / (high - low)) * (last - first),
    ticks: [...powers.flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)), 10 ** high],
  };
}

/** Returns 1, 2 or 5 times a power of ten that is at least `min`. */
function niceStep(min: number): number {
  const power = 10 ** Math.floor(Math.log10(min));
  return power * (min <= power ? 1 : min <= 2 * power ? 2 : min <= 5 * power ? 5 : 10);
}

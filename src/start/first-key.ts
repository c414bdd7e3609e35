/** The API key that a first start has made at random; every other start has none. */
export interface FirstKey {
  value: string | undefined;
  /** To be called by whoever shows it. */
  shown(): void;
}

/**
 * Sees to it that a key which cannot be had again is shown once: by the greeting, or, when this process ends
 * before its greeting, in its last line.
 */
export function firstKey(value: string | undefined): FirstKey {
  const show = () => {
    process.stdout.write(`API key of the workspace default, shown this once: ${value}\n`);
  };
  if (value) process.once('exit', show);
  return { value, shown: () => process.off('exit', show) };
}

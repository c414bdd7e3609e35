import { register } from 'node:module';

/**
 * Put before a process by `--import`: what CHAOS_SWAP names, `<compiled module>=<its replacement>` as file URLs, is
 * loaded instead of the product's own, by everyone but the replacement. So a worker can be broken without a line of
 * that in the product.
 */
const [from, to] = process.env.CHAOS_SWAP!.split('=');
register('./swap-hooks.js', { parentURL: import.meta.url, data: { from, to } });

import { register } from 'node:module';

/**
 * Preloaded by `--import`: replaces a module as defined in CHAOS_SWAP, `<compiled module>=<its replacement>`
 * with file URLs, for every importer except the replacement itself. So a worker can be broken without any
 * code for it in the product.
 */
const [from, to] = process.env.CHAOS_SWAP!.split('=');
register('./swap-hooks.js', { parentURL: import.meta.url, data: { from, to } });

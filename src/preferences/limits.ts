/** Longest template that is stored, in characters. */
export const MAX_TEMPLATE = 262_144;

/** Longest page that a template may make, in characters. */
export const MAX_PAGE = 1_048_576;

/** Milliseconds after which Liquid stops by itself: hundreds of times what a page takes. */
export const RENDER_LIMIT = 250;

/**
 * Milliseconds after which the thread that renders is ended, whatever it is doing: Liquid looks at the clock only
 * between two tags, and one filter can take for ever.
 */
export const RENDER_DEADLINE = 1000;

/** Elements and characters that one rendering may make on its way, as Liquid counts them. */
export const MEMORY_LIMIT = 10_000_000;

/** Of a rendering thread's heap, in MB. */
export const HEAP = 64;

/** Pages are rendered by so many threads, so that they take no more than this of the machine from the API. */
export const THREADS = 2;

/** Renderings that may wait for a thread; more are refused. */
export const MAX_WAITING = 16;

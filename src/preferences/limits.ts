/** Longest template that is stored, in characters. */
export const MAX_TEMPLATE = 262_144;

/** Longest page that a template may make, in characters. */
export const MAX_PAGE = 1_048_576;

/** Milliseconds after which Liquid stops by itself: hundreds of times what a page takes. */
export const RENDER_LIMIT = 500;

/**
 * Milliseconds after which the process that renders is ended, whatever it is doing: Liquid looks at the clock only
 * between two tags, and one filter can take long.
 */
export const RENDER_DEADLINE = 2000;

/** Elements and characters that one rendering may make on its way, as Liquid counts them. */
export const MEMORY_LIMIT = 5_000_000;

/** Of a rendering process's heap, in MB. */
export const HEAP = 64;

/** Processes that render, for each web process: pages take no more than this of the machine from the API. */
export const RENDERERS = 2;

/** Renderings that may wait for a process; more are refused. */
export const MAX_WAITING = 32;

/** Milliseconds that a rendering waits for processes that have others in hand. */
export const TURN_PATIENCE = 2000;

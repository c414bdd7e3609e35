import type { Connection, Pool } from '../../../src/store/database.ts';
import type { Filled } from './fill.ts';

/** Calls of functions of the store, with ids of the filled database. */
export type Asking = (store: Connection & Pool, filled: Filled) => (() => Promise<unknown>)[];

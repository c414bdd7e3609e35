import type { Connection } from '../../../../src/store/database.ts';
import type { GatedClient } from '../../postgres/pool.ts';

export const gated = (tx: Connection): GatedClient => tx as unknown as GatedClient;

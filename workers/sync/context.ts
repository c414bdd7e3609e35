import type { Source, SourceColumn } from '../../src/integrations/source.ts';
import type { Log } from '../../src/log.ts';
import type { LaneProducer } from '../../src/queue/lanes.ts';
import type { Pool } from '../../src/store/database.ts';
import type { Run } from '../../src/store/syncs/find-run.ts';
import type { ChunkMaking } from './make-chunk.ts';
import type { SyncMetrics } from './metrics.ts';
import type { Pace } from './pace.ts';
import type { Rules } from './rules.ts';

/** What runs are worked with. */
export interface SyncContext {
  pool: Pool;
  producer: LaneProducer;
  /** @throws {SourceError} */
  open(run: Run): Promise<Source>;
  /** @throws {SourceError} `config` when the source lacks a column, or has one too many */
  checkColumns(columns: SourceColumn[], run: Run): void;
  rulesOf(run: Run): Rules;
  paceOf(run: Run): Pace;
  making: Omit<ChunkMaking, 'run' | 'caller'>;
  /** Most rows of one run. */
  maxRows: number;
  metrics: SyncMetrics;
  log: Log;
}

/** How this process may be told to leave a run: when its chunk has taken effect, or at once. */
export interface Leaving {
  soon: AbortSignal;
  now: AbortSignal;
}

import { type Command, CommanderError } from 'commander';
import { ImportError } from '../../import/unpack.ts';
import { readConfig } from '../../platform/config.ts';
import { addVerb, parseCount, Refusal } from '../command.ts';
import { printRow, table } from '../output.ts';

/** Exit code if the two exports differ. */
const DIFFERENT = 2;

export function addCompare(program: Command): void {
  addVerb(program, 'compare', {
    sentence:
      'Compare two exports of users field by field: the export of another service, and one of this service. Exits with 2 if they differ.',
    example: 'compare segment-export.zip ./users --shown 50',
  })
    .argument('<theirs>', 'file or folder of the other service: NDJSON (also compressed), zip or Parquet')
    .argument('<ours>', 'file or folder of penstock export, in the same formats')
    .option('--shown <number>', 'maximum number of differences to show', parseCount, 20)
    .action(compare);
}

async function compare(
  theirs: string,
  ours: string,
  { shown, json }: { shown: number; json?: boolean },
): Promise<void> {
  const { compareExports } = await import('../../import/compare.ts');
  const leaving = new AbortController();
  const leave = () => leaving.abort(new ImportError('stopped'));
  process.once('SIGINT', leave).once('SIGTERM', leave);
  try {
    const { SYNC_SCRATCH_BYTES: scratchBytes } = readConfig();
    const { first, fields, not_compared, ...counts } = await compareExports(theirs, ours, {
      ...{ shown, scratchBytes, leaving: leaving.signal },
    });
    if (json) printRow(json, { ...counts, fields, not_compared, first });
    else {
      const names = Object.entries(fields).map(([name, count]) => `${name} (${count})`);
      printRow(json, { ...counts, fields: names.join(', '), not_compared: not_compared.join(', ') });
      if (first.length > 0) process.stdout.write(`\n${table(first.map((one) => ({ ...one })))}\n`);
    }
    if (counts.differ + counts.only_theirs + counts.only_ours > 0)
      throw new CommanderError(DIFFERENT, 'penstock.compare', '');
  } catch (error) {
    throw error instanceof ImportError ? new Refusal(error.message) : error;
  } finally {
    process.off('SIGINT', leave).off('SIGTERM', leave);
  }
}

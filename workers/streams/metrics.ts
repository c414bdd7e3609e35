import { Counter, Gauge, type Registry } from 'prom-client';
import { boundLabel } from '../../src/processes/metrics.ts';
import type { DestinationRow } from '../../src/store/stream-destinations.ts';

/** What a sync process counts of streams; labels are bounded. */
export function createStreamMetrics(registry: Registry) {
  const registers = [registry];
  const labelNames = ['workspace', 'destination'];
  const shownAs = boundLabel();
  const labels = ({ workspace, name }: { workspace: string; name: string }) => {
    const shown = shownAs(`${workspace}/${name}`);
    return shown === `${workspace}/${name}`
      ? { workspace, destination: name }
      : { workspace: shown, destination: shown };
  };
  const lag = new Gauge({
    name: 'penstock_stream_lag_seconds',
    help: 'Age of the oldest thing that a destination has not got; 0: it has all.',
    labelNames,
    registers,
  });
  const failing = new Gauge({
    name: 'penstock_stream_failing',
    help: 'Vain tries since the last delivery, by destination.',
    labelNames,
    registers,
  });
  const lost = new Gauge({
    name: 'penstock_stream_lost_rows',
    help: 'Rows of the log that were trimmed before a destination had got them.',
    labelNames,
    registers,
  });
  const delivered = new Counter({
    name: 'penstock_stream_delivered_total',
    help: 'Messages that this process has delivered, by destination.',
    labelNames,
    registers,
  });
  const failures = new Counter({
    name: 'penstock_stream_failures_total',
    help: 'Vain tries of this process to deliver, by destination.',
    labelNames,
    registers,
  });
  const gaveWay = new Counter({
    name: 'penstock_stream_yielded_seconds_total',
    help: 'Seconds that destinations have waited in this process, as it gave way to what clients send.',
    registers,
  });
  return {
    note(destinations: DestinationRow[]): void {
      for (const gauge of [lag, failing, lost]) gauge.reset();
      for (const destination of destinations) {
        const named = labels(destination);
        lag.set(named, destination.lag);
        failing.set(named, destination.failures);
        lost.set(named, destination.lost);
      }
    },
    delivered: (of: { workspace: string; name: string }, messages: number) =>
      delivered.inc(labels(of), messages),
    gaveWay: (milliseconds: number) => gaveWay.inc(milliseconds / 1000),
    failed: (of: { workspace: string; name: string }) => failures.inc(labels(of)),
  };
}

export type StreamMetrics = ReturnType<typeof createStreamMetrics>;

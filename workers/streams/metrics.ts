import { Counter, Gauge, type Registry } from 'prom-client';
import { boundLabel } from '../../src/processes/metrics.ts';
import type { DestinationRow } from '../../src/store/stream-destinations.ts';

/** Creates the stream metrics of a sync process. The number of label values is limited. */
export function createStreamMetrics(registry: Registry) {
  const registers = [registry];
  const labelNames = ['workspace', 'destination'];
  const labelOf = boundLabel();
  const labels = ({ workspace, name }: { workspace: string; name: string }) => {
    const shown = labelOf(`${workspace}/${name}`);
    return shown === `${workspace}/${name}`
      ? { workspace, destination: name }
      : { workspace: shown, destination: shown };
  };
  const lag = new Gauge({
    name: 'penstock_stream_lag_seconds',
    help: 'Age in seconds of the oldest change that a destination has not received; 0 if it has received all.',
    labelNames,
    registers,
  });
  const gather = new Gauge({
    name: 'penstock_stream_gather_seconds',
    help: 'Seconds for which changes are collected before delivery; 0 if they are delivered immediately.',
    labelNames,
    registers,
  });
  const failing = new Gauge({
    name: 'penstock_stream_failing',
    help: 'Failed delivery attempts since the last success, by destination.',
    labelNames,
    registers,
  });
  const lost = new Gauge({
    name: 'penstock_stream_lost_rows',
    help: 'Rows of the stream log that were dropped before a destination received them.',
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
    help: 'Failed delivery attempts of this process, by destination.',
    labelNames,
    registers,
  });
  const abandoned = new Counter({
    name: 'penstock_stream_abandoned_total',
    help: 'Deliveries of this process that were abandoned because they made no progress until their lease expired, by destination.',
    labelNames,
    registers,
  });
  const yieldedSeconds = new Counter({
    name: 'penstock_stream_yielded_seconds_total',
    help: 'Seconds for which this process delayed deliveries in favor of workers, summed over destinations.',
    registers,
  });
  return {
    note(destinations: DestinationRow[]): void {
      for (const gauge of [lag, gather, failing, lost]) gauge.reset();
      for (const destination of destinations) {
        const named = labels(destination);
        lag.set(named, destination.lag);
        gather.set(named, destination.gatherMs / 1000);
        failing.set(named, destination.failures);
        lost.set(named, destination.lost);
      }
    },
    delivered: (of: { workspace: string; name: string }, messages: number) =>
      delivered.inc(labels(of), messages),
    yielded: (milliseconds: number) => yieldedSeconds.inc(milliseconds / 1000),
    failed: (of: { workspace: string; name: string }) => failures.inc(labels(of)),
    abandoned: (of: { workspace: string; name: string }) => abandoned.inc(labels(of)),
  };
}

export type StreamMetrics = ReturnType<typeof createStreamMetrics>;

import { EARLIEST, LATEST } from '../../src/profile/time.ts';
import { MAX_APP_ID, type SeriesKind, type SeriesRow } from '../../src/store/activity-series.ts';
import type { EventRow } from '../../src/store/events.ts';
import type { PurchaseRow } from '../../src/store/purchases.ts';

/** Series of one workspace in one lane: by kind, then by name, then by hour, currency and app. */
type Tally = Record<SeriesKind, Map<string, Map<string, SeriesRow>>>;

/**
 * Sums up what is recorded, hour by hour: events by name, purchases by product and all together, each of all apps and of
 * the one that it names. Rows of a request follow each other, and most of a batch fall into few hours of few names.
 */
export function tallySeries(events: readonly EventRow[], purchases: readonly PurchaseRow[]): SeriesRow[] {
  const rows: SeriesRow[] = [];
  const tallies = new Map<string, Map<number, Tally>>();
  let current: { workspaceId: string; lane: number; tally: Tally } | undefined;

  function tallyOf({ workspace_id: workspaceId, lane }: EventRow | PurchaseRow): Tally {
    if (current?.workspaceId === workspaceId && current.lane === lane) return current.tally;
    const lanes = tallies.get(workspaceId) ?? new Map<number, Tally>();
    const tally = lanes.get(lane) ?? { event: new Map(), product: new Map(), purchases: new Map() };
    tallies.set(workspaceId, lanes.set(lane, tally));
    current = { workspaceId, lane, tally };
    return tally;
  }

  /** The rows to which it counts: of all apps, and of its own. */
  function rowsOf(
    one: EventRow | PurchaseRow,
    { kind, name, currency }: { kind: SeriesKind; name: string; currency: string },
  ): SeriesRow[] {
    const { workspace_id, lane, time, app_id = '' } = one;
    const series = tallyOf(one)[kind];
    const hours = series.get(name) ?? new Map<string, SeriesRow>();
    if (hours.size === 0) series.set(name, hours);
    const hour = hourOf(time);
    if (hour === undefined) return [];
    const rowOf = (app: string): SeriesRow => {
      const key = `${hour} ${currency} ${app}`;
      const known = hours.get(key);
      if (known) return known;
      const nothing = { count: 0, prices: [], quantities: [] };
      const scope = { workspace_id, kind, name, app_id: app, hour: `${hour}:00:00Z`, currency, lane };
      const row: SeriesRow = { ...scope, ...nothing };
      hours.set(key, row);
      rows.push(row);
      return row;
    };
    return app_id === '' || Buffer.byteLength(app_id) > MAX_APP_ID ? [rowOf('')] : [rowOf(''), rowOf(app_id)];
  }

  for (const event of events)
    for (const row of rowsOf(event, { kind: 'event', name: event.name, currency: '' })) row.count++;
  for (const purchase of purchases) {
    const { product_id, currency } = purchase;
    for (const row of rowsOf(purchase, { kind: 'product', name: product_id, currency })) buy(row, purchase);
    for (const row of rowsOf(purchase, { kind: 'purchases', name: '', currency })) buy(row, purchase);
  }
  return rows;
}

/** As the edge writes it; what a person has mended, or another release has written, may say it in another way. */
const CANONICAL = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** As `2026-01-31T12`; undefined: it is no time, and the store refuses what has it. */
function hourOf(time: string): string | undefined {
  if (CANONICAL.test(time)) return time.slice(0, 13);
  const parsed = Date.parse(time);
  return parsed >= EARLIEST && parsed <= LATEST ? new Date(parsed).toISOString().slice(0, 13) : undefined;
}

function buy(row: SeriesRow, { price, quantity }: PurchaseRow): void {
  row.count += quantity;
  // Most of a product are bought at one price.
  const last = row.prices.length - 1;
  if (row.prices[last] === price) row.quantities[last]! += quantity;
  else {
    row.prices.push(price);
    row.quantities.push(quantity);
  }
}

import type { Connection } from '../database.ts';

export interface LaneCount {
  lane: number;
  envelopes: number;
  objects: number;
  dead_letters: number;
  apply_seconds: number;
}

/** Upserts by primary key; sorted by lane. */
const statement = `
  insert into lane_totals (lane, envelopes, objects, dead_letters, apply_seconds)
  select counted.lane, counted.envelopes, counted.objects, counted.dead_letters, counted.apply_seconds
  from jsonb_to_recordset($1::jsonb) as counted (
    lane integer, envelopes bigint, objects bigint, dead_letters bigint, apply_seconds double precision)
  order by counted.lane
  on conflict (lane) do update set
    envelopes = lane_totals.envelopes + excluded.envelopes,
    objects = lane_totals.objects + excluded.objects,
    dead_letters = lane_totals.dead_letters + excluded.dead_letters,
    apply_seconds = lane_totals.apply_seconds + excluded.apply_seconds`;

export async function countLanes(tx: Connection, rows: LaneCount[]): Promise<void> {
  await tx.query({ name: 'count-lanes', text: statement, values: [JSON.stringify(rows)] });
}

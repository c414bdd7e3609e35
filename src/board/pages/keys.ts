import { grouped } from '../../platform/format.ts';
import { html, type Part } from '../../platform/html.ts';
import { bucketName } from '../../resources/limits.ts';
import { type KeyUsage, readKeyUsage, type ShownApiKey } from '../../store/api-keys.ts';
import { dailyChart } from '../chart.ts';
import { count, empty, table } from '../layout.ts';
import type { Extras } from '../resource-pages.ts';

/** Number of days of requests that the page shows. */
const DAYS = 30;

/** Additions to the pages of API keys: the requests of a key. */
export const keyExtras: Extras<ShownApiKey> = {
  async section({ services }, key) {
    const usage = await readKeyUsage(services.database, key, DAYS);
    return html`<h2>Requests</h2>
<p class="lead">By bucket, as the limits count them. Web processes write their counts once a minute.</p>
${requests(usage)}`;
  },
};

function requests(usage: KeyUsage[]): Part {
  if (usage.length === 0)
    return empty('No requests in the last 30 days', 'Its first request appears here a minute later.');
  return html`${dailyChart(
    'Requests by day',
    usage.map(({ day, requests: value }) => ({ day, value })),
    { days: DAYS },
  )}
${table(
  'Requests by day and bucket',
  ['Day', 'Bucket', { name: 'Requests', number: true }, { name: 'Refused by the limit', number: true }],
  usage.map((row) => [
    row.day,
    html`<code>${bucketName(row.bucket)}</code>`,
    grouped(row.requests),
    grouped(row.refused),
  ]),
)}
<p class="faint pager">${count(
    usage.reduce((sum, row) => sum + row.requests, 0),
    'request',
  )} in ${DAYS} days. Days are in UTC.</p>`;
}

import { type Html, html } from '../platform/html.ts';
import { MICROSECONDS, type Sizing, sizeInstallation, type Traffic } from './sizing.ts';

/** Path and title of the page. */
export const CALCULATOR = { path: '/docs/calculator', title: 'Sizing calculator' };

/** The search finds the page by these texts. */
export const CALCULATOR_FOUND = {
  heading: CALCULATOR.title,
  tasks: 'calculate how many machines, cores, processes, lanes, and how much disk and memory you need',
  text: 'Cores of web, worker and Postgres, lanes, disk of Postgres and memory of Redis for your objects per second.',
};

type NumberName = 'objectsPerSecond' | 'singlePercent' | 'storedUsers' | 'ledgerDays';

interface NumberField {
  /** Name in the query string. */
  parameter: string;
  label: string;
  min: number;
  max: number;
  value: number;
}

const numberFields: Record<NumberName, NumberField> = {
  objectsPerSecond: {
    ...{ parameter: 'objects_per_second', label: 'Objects per second at the peak' },
    ...{ min: 1, max: 10_000_000, value: 10_000 },
  },
  singlePercent: {
    ...{ parameter: 'single_percent', label: 'Percent of the objects that are sent alone in a request' },
    ...{ min: 0, max: 100, value: 0 },
  },
  storedUsers: {
    ...{ parameter: 'stored_users', label: 'Stored users' },
    ...{ min: 0, max: 10_000_000_000, value: 1_000_000 },
  },
  ledgerDays: {
    ...{ parameter: 'ledger_days', label: 'Days of the ledger (LEDGER_DAYS)' },
    ...{ min: 2, max: 3650, value: 7 },
  },
};
const queueNames = { redis: 'Redis', postgres: 'Postgres' };

/** The parsed fields of the form, or the fields as sent with an error for each invalid one. */
interface Form {
  traffic: Traffic;
  /** Text in the field of a number. */
  texts: Record<NumberName, string>;
  errors: Partial<Record<NumberName, string>>;
}

/** Parses the query string. A missing field has its default. */
function readForm(query: URLSearchParams): Form {
  const traffic: Traffic = {
    ...{ objectsPerSecond: 0, singlePercent: 0, storedUsers: 0, ledgerDays: 0 },
    queue: query.get('queue') === 'postgres' ? 'postgres' : 'redis',
  };
  const form: Form = {
    traffic,
    texts: { objectsPerSecond: '', singlePercent: '', storedUsers: '', ledgerDays: '' },
    errors: {},
  };
  for (const name of Object.keys(numberFields) as NumberName[]) {
    const { parameter, label, min, max, value } = numberFields[name];
    const text = (query.get(parameter) ?? String(value)).slice(0, 20).trim();
    const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    form.texts[name] = text;
    if (number >= min && number <= max) traffic[name] = number;
    else
      form.errors[name] =
        `${label}: enter a whole number from ${min.toLocaleString('en')} to ${max.toLocaleString('en')}.`;
  }
  return form;
}

/** Renders the calculator: a GET form, and the result for the query string. */
export function calculatorPage(query: URLSearchParams): Html {
  const { traffic, texts, errors } = readForm(query);
  const problems = Object.entries(errors);
  const fields = (Object.keys(numberFields) as NumberName[]).map((name) => {
    const { parameter, label, min, max } = numberFields[name];
    const invalid =
      errors[name] !== undefined && html` aria-invalid="true" aria-describedby="error-${parameter}"`;
    return html`<label>${label}<input name="${parameter}" type="number" min="${min}" max="${max}" step="1" required value="${texts[name]}"${invalid}></label>`;
  });
  const options = Object.entries(queueNames).map(
    ([value, text]) =>
      html`<option value="${value}"${value === traffic.queue && html` selected`}>${text}</option>`,
  );
  return html`<h1>${CALCULATOR.title}</h1>
<p class="lead">How many processes, cores, lanes, and how much disk and memory your traffic needs. The result is an estimate from
measurements on two cores. <a href="/docs/guides/performance#size-your-installation">Performance and sizing</a> explains the formula for
cores, and docs/evidence/sizing.md in the repository has the other formulas and the source of each number.</p>
<form class="calculator" action="${CALCULATOR.path}" data-calculator>
<div class="fields">${fields}<label>Queue<select name="queue">${options}</select></label></div>
<button class="main">Calculate</button>
</form>
<div data-results>${
    problems.length > 0
      ? problems.map(
          ([name, text]) =>
            html`<p class="bad" role="alert" id="error-${numberFields[name as NumberName].parameter}">${text}</p>`,
        )
      : resultTable(traffic, sizeInstallation(traffic))
  }</div>`;
}

function resultTable(traffic: Traffic, sizing: Sizing): Html {
  const { cores, warnings } = sizing;
  const { large, single } = MICROSECONDS[traffic.queue];
  const share = traffic.singlePercent / 100;
  const costText = (program: 'web' | 'worker' | 'postgres' | 'redis') =>
    share === 0
      ? `${large[program]} µs`
      : `(${large[program]} µs × ${round(1 - share)} + ${single[program]} µs × ${round(share)})`;
  const rate = `${traffic.objectsPerSecond.toLocaleString('en')}/s`;
  const onRedis = traffic.queue === 'redis';
  const rows: [string, string, string][] = [
    [
      'Web',
      `${count(sizing.webProcesses, 'process', 'processes')}, ${coreText(cores.web)}`,
      `${rate} × ${costText('web')} / 0.6; a process uses one core`,
    ],
    [
      'Worker',
      `${count(sizing.workerProcesses, 'process', 'processes')}, ${coreText(cores.worker)}`,
      `cores: ${rate} × ${costText('worker')} / 0.6; processes: ${rate} × (worker + Postgres time) / 0.6 / 2 transactions`,
    ],
    [
      'Postgres',
      `${count(Math.max(1, Math.ceil(cores.postgres)), 'core', 'cores')} on ${count(sizing.postgresServers, 'server', 'servers')}`,
      `${rate} × ${costText('postgres')}${sizing.postgresServers > 1 ? ' × 2 for Citus' : ''} / 0.6; one server for each 300,000/s`,
    ],
    [
      onRedis ? 'Lanes (LANES × SHARDS)' : 'Lanes (LANES)',
      `${sizing.lanes.toLocaleString('en')}${sizing.shards > 1 ? `, in ${sizing.shards} shards of ${sizing.lanes / sizing.shards}` : ''}`,
      `${rate} / (24,000/s × 27.2 µs / (worker + Postgres time))`,
    ],
    ['Disk of Postgres: users', bytesText(sizing.usersBytes), 'stored users × 380 bytes'],
    [
      'Disk of Postgres: ledger',
      `at most ${bytesText(sizing.ledgerBytes)}`,
      'requests per second × 86,400 s × days × 125 bytes',
    ],
    [
      'Disk of Postgres: growth per day',
      bytesText(sizing.growthBytesPerDay),
      `${rate} × 86,400 s × 350 bytes`,
    ],
    ...(onRedis
      ? ([
          [
            'Redis',
            `${count(sizing.redisServers, 'server', 'servers')}, ${coreText(cores.redis)}`,
            `${rate} × ${costText('redis')} / 0.6; one server for each shard`,
          ],
          [
            'Memory of Redis for one minute without Postgres',
            bytesText(sizing.redisBytes),
            `${rate} × 60 s × 308 bytes`,
          ],
        ] as [string, string, string][])
      : []),
  ];
  return html`<h2 id="result">Result</h2>
<p class="unseen" role="status">${rows.slice(0, 4).map(([part, need]) => `${part}: ${need}. `)}</p>
${warnings.map((text) => html`<p class="bad">${text}</p>`)}<div class="scroll" role="group" aria-label="Result" tabindex="0"><table><thead><tr><th scope="col">Part</th><th scope="col">You need</th><th scope="col">Formula</th></tr></thead><tbody>${rows.map(
    ([part, need, formula]) => html`<tr><td>${part}</td><td>${need}</td><td>${formula}</td></tr>`,
  )}</tbody></table></div>
<p>Plan one more process of each kind than the result, so that one can fail. The ledger and the growth assume that the peak lasts all day.
Enter the average rate to size the disk.</p>`;
}

const round = (value: number) => Number(value.toFixed(2));

const count = (value: number, one: string, many: string) =>
  `${value.toLocaleString('en')} ${value === 1 ? one : many}`;

/** Formats busy cores with one decimal, rounded up. */
function coreText(cores: number): string {
  const value = Math.max(0.1, Math.ceil(Number((cores * 10).toFixed(6))) / 10);
  return `${value.toLocaleString('en')} ${value === 1 ? 'core' : 'cores'}`;
}

/** Formats bytes with three significant digits in a decimal unit. */
function bytesText(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${Number(value.toPrecision(3)).toLocaleString('en')} ${units[unit]}`;
}

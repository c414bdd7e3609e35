import { duration } from '../platform/format.ts';
import type { Check } from './check.ts';
import type { Certificate, Readings } from './readings.ts';

const EXPIRY = { days: 14, seconds: 14 * 86_400 };

/** Seconds until a certificate of a server with TLS expires; negative if it has expired. */
const secondsLeft = ({ validUntil }: Certificate, { at }: Readings) =>
  (validUntil!.getTime() - at.getTime()) / 1000;

const withTls = ({ machine }: Readings): Certificate[] =>
  (machine?.certificates ?? []).filter(({ validUntil }) => validUntil !== undefined);

const certificateOf = ({ store, server }: Certificate) => ({
  subject: `${store} ${server}`,
  name: `certificate of ${store} (${server})`,
});

/** Checks of the certificates with which the stores encrypt connections. */
export const certificateChecks: readonly Check[] = [
  {
    id: 'certificate-expired',
    group: 'certificate',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine', 'prometheus'],
    impact: 'Open connections continue. Processes that verify the certificate cannot open new ones.',
    firstStep: 'Renew it on the server and reload the server.',
    link: '/',
    normal: (readings) =>
      withTls(readings).map((one) => ({
        subject: certificateOf(one).subject,
        sentence: `the ${certificateOf(one).name} is valid until ${one.validUntil!.toISOString()}`,
      })),
    find: (readings) =>
      withTls(readings)
        .filter((one) => secondsLeft(one, readings) <= 0)
        .map((one) => ({
          subject: certificateOf(one).subject,
          sentence: `The ${certificateOf(one).name} has expired: it was valid until ${one.validUntil!.toISOString()}.`,
        })),
    alert: {
      name: 'PenstockCertificateExpired',
      expr: 'min by (store) (penstock_certificate_expiry_timestamp_seconds) < time()',
      summary: '{{ $labels.store }}: the certificate has expired',
      meaning: 'The certificate of Postgres or Redis has expired.',
      diagnose: [
        'Run `penstock doctor`, which names the certificate. Alternatively, run `openssl s_client -starttls postgres -connect host:5432` for Postgres, or `openssl s_client -connect host:6379` for Redis.',
      ],
      fix: [
        'Renew the certificate on the server and reload it (`pg_ctl reload`, or `redis-cli config set tls-cert-file …`). You do not have to restart Penstock.',
      ],
    },
  },
  {
    id: 'certificate-expires',
    group: 'certificate',
    severity: 'warning',
    scope: 'installation',
    evaluators: ['machine', 'prometheus'],
    impact: 'After it expires, processes that verify it cannot open new connections.',
    firstStep: 'Renew it, and check why it was not renewed automatically.',
    link: '/',
    find: (readings) =>
      withTls(readings)
        .filter((one) => one.distrust === undefined)
        .filter((one) => secondsLeft(one, readings) > 0 && secondsLeft(one, readings) <= EXPIRY.seconds)
        .map((one) => ({
          subject: certificateOf(one).subject,
          sentence: `The ${certificateOf(one).name} expires in ${duration(secondsLeft(one, readings))}, at ${one.validUntil!.toISOString()} (threshold ${EXPIRY.days} days).`,
        })),
    alert: {
      name: 'PenstockCertificateExpires',
      expr: `min by (store) (penstock_certificate_expiry_timestamp_seconds) - time() < ${EXPIRY.days} * 86400`,
      summary: `{{ $labels.store }}: the certificate expires in {{ $value | humanizeDuration }} (threshold ${EXPIRY.days}d)`,
      meaning: 'The certificate of Postgres or Redis expires within 14 days.',
      diagnose: [
        'Run `penstock doctor`. Alternatively, run `openssl s_client -starttls postgres -connect host:5432` for Postgres, or `openssl s_client -connect host:6379` for Redis.',
      ],
      fix: ['Renew the certificate now, and find out why it was not renewed automatically.'],
    },
  },
  {
    id: 'certificate-untrusted',
    group: 'certificate',
    severity: 'critical',
    scope: 'machine',
    evaluators: ['machine'],
    impact: 'Processes on this machine cannot connect to the store.',
    firstStep:
      'Set NODE_EXTRA_CA_CERTS (for Postgres also sslrootcert) to the authority, and use the host name of the certificate.',
    link: '/',
    find: (readings) =>
      withTls(readings)
        .filter((one) => one.distrust !== undefined && secondsLeft(one, readings) > 0)
        .map((one) => ({
          subject: certificateOf(one).subject,
          sentence: `The ${certificateOf(one).name} is not trusted on this machine: ${one.distrust}.`,
        })),
  },
  {
    id: 'tls-not-offered',
    group: 'certificate',
    severity: 'critical',
    scope: 'installation',
    evaluators: ['machine'],
    impact: 'Processes with these settings cannot connect to Postgres.',
    firstStep: 'Set ssl = on in Postgres.',
    link: '/',
    find: ({ machine }) =>
      (machine?.certificates ?? [])
        .filter(({ validUntil }) => validUntil === undefined)
        .map((one) => ({
          subject: certificateOf(one).subject,
          sentence: `DATABASE_URL requires TLS, and Postgres (${one.server}) does not offer it.`,
        })),
  },
];

import { servers, text, visibleAscii } from './define.ts';

/**
 * Settings of logs, metrics and traces. Traces use the names of the OpenTelemetry specification. The SDK
 * reads variables that Penstock does not validate by itself.
 */
export const telemetrySettings = {
  LOG_LEVEL: text({
    description: 'The lowest level that is logged.',
    default: 'info',
    example: 'debug',
    readBy: [...servers, 'release', 'start'],
    enum: ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
  }),
  LOG_FORMAT: text({
    description:
      'The format of a log line: `json`, `readable`, or `auto` (readable on a terminal, otherwise json).',
    default: 'auto',
    example: 'json',
    readBy: [...servers, 'release', 'start'],
    enum: ['auto', 'json', 'readable'],
  }),
  METRICS_TOKEN: text({
    description:
      'The token that a client must send to read /metrics of any process, as `Authorization: Bearer`. Empty: everyone who can reach the port can read the metrics.',
    example: 'change-me-to-a-long-random-text',
    readBy: [...servers, 'cli'],
    ...visibleAscii(16, 500),
  }),
  OTEL_EXPORTER_OTLP_ENDPOINT: text({
    description:
      'The address of an OpenTelemetry collector that receives traces over HTTP; /v1/traces is appended. Empty: no traces.',
    example: 'http://collector:4318',
    readBy: servers,
    pattern: '^(https?://[^\\s]+)?$',
    rule: 'must start with http:// or https://',
  }),
  OTEL_EXPORTER_OTLP_PROTOCOL: text({
    description:
      'The protocol for traces. Collectors accept both at the same port. `http/protobuf` needs half the bytes and about three times the CPU time. `grpc` is not supported.',
    default: 'http/json',
    example: 'http/protobuf',
    readBy: servers,
    enum: ['http/protobuf', 'http/json'],
  }),
  OTEL_SDK_DISABLED: text({
    description: '`true` switches off all traces, regardless of the other settings.',
    default: 'false',
    example: 'true',
    readBy: servers,
    enum: ['true', 'false'],
  }),
  OTEL_TRACES_SAMPLER: text({
    description:
      'Which requests are traced. A name with `parentbased_` follows the sampling flag in the traceparent of a request, and applies the rest of its name to requests without a traceparent.',
    default: 'parentbased_always_on',
    example: 'parentbased_traceidratio',
    readBy: servers,
    enum: [
      'always_on',
      'always_off',
      'traceidratio',
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
    ],
  }),
  OTEL_TRACES_SAMPLER_ARG: text({
    description: 'The share of requests that `traceidratio` traces, from 0 to 1. Empty: all.',
    example: '0.01',
    readBy: servers,
    pattern: '^(0?\\.[0-9]+|0|1(\\.0+)?)?$',
    rule: 'must be a number from 0 to 1',
  }),
} as const;

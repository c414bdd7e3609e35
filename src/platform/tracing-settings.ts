/**
 * Settings of traces, by the names of OpenTelemetry's specification. The SDK itself reads those variables of it that need
 * no rule of ours: docs/operations.md names them.
 */
export const tracingSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Where traces are sent, as http://collector:4318: the address of an OpenTelemetry collector, to which /v1/traces is added. Empty: nothing is traced.',
    pattern: '^(https?://[^\\s]+)?$',
    rule: 'must start with http:// or https://',
  },
  OTEL_EXPORTER_OTLP_PROTOCOL: {
    type: 'string',
    default: 'http/json',
    unit: '',
    description:
      'How traces are sent. Collectors take both at the same port; http/protobuf takes half the bytes and more processor time. There is no grpc here.',
    enum: ['http/protobuf', 'http/json'],
  },
  OTEL_SDK_DISABLED: {
    type: 'string',
    default: 'false',
    unit: '',
    description: 'Nothing is traced where it is true, whatever else is set.',
    enum: ['true', 'false'],
  },
  OTEL_TRACES_SAMPLER: {
    type: 'string',
    default: 'parentbased_always_on',
    unit: '',
    description:
      'Which requests are traced. parentbased_: those whose client says so in its traceparent, and of those without one what the rest of the name says.',
    enum: [
      ...['always_on', 'always_off', 'traceidratio'],
      ...['parentbased_always_on', 'parentbased_always_off', 'parentbased_traceidratio'],
    ],
  },
  OTEL_TRACES_SAMPLER_ARG: {
    type: 'string',
    default: '',
    unit: '',
    description:
      'Share of requests that traceidratio traces, from 0 to 1: 0.01 is one in a hundred. Empty: all.',
    pattern: '^(0?\\.[0-9]+|0|1(\\.0+)?)?$',
    rule: 'must be a number from 0 to 1',
  },
} as const;

import { AsyncLocalStorage } from 'node:async_hooks';
import {
  type Attributes,
  type Context,
  type Link,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from '@opentelemetry/api';
import { ExportResultCode, getNumberFromEnv, parseTraceParent } from '@opentelemetry/core';
import {
  defaultResource,
  detectResources,
  envDetector,
  type Resource,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BasicTracerProvider,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  type SpanExporter,
  type SpanProcessor,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import type { Config } from './config.ts';

/** Who makes the spans. */
export interface TracedProcess {
  /** `web`, `worker` and so on. */
  name: string;
  /** Of this process: the same as in its heartbeat. */
  id: string;
  version: string;
}

export interface Beginning {
  kind: keyof typeof KINDS;
  /** `active`: the span in which this one begins. A text is the `traceparent` of one of another process. Absent: a new trace. */
  parent?: 'active' | string | undefined;
  /** What it is linked to, each as `traceparent`. */
  links?: string[];
  attributes?: Attributes;
}

const KINDS = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
} as const;

/** Spans that wait for the collector, as the standard has it; more are left out. */
const MOST_WAITING = 2048;

interface SmallLog {
  warn(fields: object, message: string): void;
  info(fields: object, message: string): void;
}

/**
 * OpenTelemetry's SDK, set up for one process. Nothing of it is registered globally: who wants a span asks for it.
 * This file alone loads the SDK, and is loaded when there is somebody to send spans to.
 */
export async function openTelemetry(config: Config, self: TracedProcess) {
  const counts = { exported: 0, failed: 0, dropped: 0 };
  let log: SmallLog | undefined;
  const exporter = await createExporter(config.OTEL_EXPORTER_OTLP_PROTOCOL);
  const spanProcessor = createProcessor(exporter, counts, () => log);
  const provider = new BasicTracerProvider({
    resource: describeProcess(self),
    sampler: byFirstLink(createSampler(config)),
    spanProcessors: [spanProcessor],
  });
  const tracer = provider.getTracer('penstock', self.version);
  const storage = new AsyncLocalStorage<Span | undefined>();

  return {
    /** A span that has begun. Who begins it ends it. */
    begin(name: string, { kind, parent, links, attributes }: Beginning): Span {
      const options = {
        kind: KINDS[kind],
        ...(links && { links: links.flatMap(linkTo) }),
        ...(attributes && { attributes }),
      };
      const context = parent === 'active' ? inside(storage.getStore()) : below(parent);
      return tracer.startSpan(name, options, context);
    },

    /** Does work as part of a span; undefined: of none. */
    within: <Result>(span: Span | undefined, work: () => Result): Result => storage.run(span, work),

    /** The span that the caller works for. */
    active: (): Span | undefined => storage.getStore(),

    /** The same, if it is sampled and has not ended. */
    recording(): Span | undefined {
      const span = storage.getStore();
      return span?.isRecording() ? span : undefined;
    },

    /** A function that is always called as part of the present span. */
    // biome-ignore lint/suspicious/noExplicitAny: Any function is one.
    bind: <Bound extends (...given: any[]) => unknown>(work: Bound): Bound =>
      AsyncLocalStorage.bind(work) as Bound,

    /** The ids of the present span, as lines of the log have them. */
    ids: (): object => idsOf(storage.getStore()),

    /** From now on, trouble with the collector is told there, each time that it begins or ends. */
    tellTo(given: SmallLog): void {
      log = given;
    },

    /** Spans since the start: taken by the collector, refused by it, and left out because too many waited. */
    counts: () => counts,

    /** Sends what waits; gives up after so many milliseconds. */
    async stop(milliseconds: number): Promise<void> {
      let timer: NodeJS.Timeout | undefined;
      const over = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, milliseconds);
      });
      await Promise.race([provider.shutdown(), over]).finally(() => clearTimeout(timer));
    },
  };
}

export type Tracing = Awaited<ReturnType<typeof openTelemetry>>;

/** The name under which a line of the log, and whatever else, finds the span again. */
export function idsOf(span: Span | undefined): { trace_id?: string; span_id?: string } {
  if (!span) return {};
  const { traceId, spanId } = span.spanContext();
  return { trace_id: traceId, span_id: spanId };
}

/** As W3C Trace Context writes it; undefined: the span is not sampled. */
export function traceparentOf(span: Span | undefined): string | undefined {
  if (!span) return undefined;
  const { traceId, spanId, traceFlags } = span.spanContext();
  return traceFlags & TraceFlags.SAMPLED ? `00-${traceId}-${spanId}-01` : undefined;
}

/** Says that what the span is about has failed. Errors' own words stay out: they may quote what somebody sent. */
export function failSpan(span: Span, type: string): void {
  span.setAttribute('error.type', type).setStatus({ code: SpanStatusCode.ERROR });
}

function inside(span: Span | undefined): Context {
  return span ? trace.setSpan(ROOT_CONTEXT, span) : ROOT_CONTEXT;
}

/** What is no `traceparent` is as good as none. */
function below(traceparent: string | undefined): Context {
  const parsed = traceparent === undefined ? null : parse(traceparent);
  return parsed ? trace.setSpanContext(ROOT_CONTEXT, parsed) : ROOT_CONTEXT;
}

function linkTo(traceparent: string): Link[] {
  const context = parse(traceparent);
  return context ? [{ context }] : [];
}

function parse(traceparent: string): SpanContext | null {
  const parsed = parseTraceParent(traceparent);
  if (parsed) parsed.isRemote = true;
  return parsed;
}

/** What the environment says of the process goes before what we say. */
function describeProcess({ name, id, version }: TracedProcess): Resource {
  const ours = resourceFromAttributes({
    'service.name': `penstock-${name}`,
    'service.version': version,
    'service.instance.id': id,
  });
  return defaultResource()
    .merge(ours)
    .merge(detectResources({ detectors: [envDetector] }));
}

async function createExporter(protocol: string): Promise<SpanExporter> {
  const { OTLPTraceExporter } =
    protocol === 'http/json'
      ? await import('@opentelemetry/exporter-trace-otlp-http')
      : await import('@opentelemetry/exporter-trace-otlp-proto');
  // Address, headers, time-out, compression and certificates are read from the standard's variables by itself.
  return new OTLPTraceExporter();
}

function createSampler({ OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: argument }: Config): Sampler {
  const [, parentBased, own] = /^(parentbased_)?(.*)$/.exec(name)!;
  const root =
    own === 'always_off'
      ? new AlwaysOffSampler()
      : own === 'traceidratio'
        ? new TraceIdRatioBasedSampler(argument === '' ? 1 : Number(argument))
        : new AlwaysOnSampler();
  return parentBased ? new ParentBasedSampler({ root }) : root;
}

/** What has links and no parent is sampled as if the first of them were its parent. */
function byFirstLink(sampler: Sampler): Sampler {
  return {
    // biome-ignore lint/complexity/useMaxParams: The SDK's interface.
    shouldSample(context, traceId, name, kind, attributes, links) {
      const first = kind === SpanKind.CONSUMER ? links[0]?.context : undefined;
      if (!first) return sampler.shouldSample(context, traceId, name, kind, attributes, links);
      const parent = trace.setSpanContext(ROOT_CONTEXT, first);
      return sampler.shouldSample(parent, first.traceId, name, kind, attributes, links);
    },
    toString: () => `ByFirstLink{${sampler.toString()}}`,
  };
}

/** The SDK's batches, in front of which spans are counted that find too many waiting, and behind which those that fail. */
function createProcessor(
  exporter: SpanExporter,
  counts: { exported: number; failed: number; dropped: number },
  log: () => SmallLog | undefined,
): SpanProcessor {
  const most = getNumberFromEnv('OTEL_BSP_MAX_QUEUE_SIZE') ?? MOST_WAITING;
  let waiting = 0;
  let failedInARow = 0;
  const batches = new BatchSpanProcessor(
    {
      export(spans, done) {
        waiting -= spans.length;
        exporter.export(spans, (result) => {
          if (result.code === ExportResultCode.SUCCESS) {
            counts.exported += spans.length;
            if (failedInARow > 0)
              log()?.info({ left_out: failedInARow }, 'spans reach their collector again');
            failedInARow = 0;
          } else {
            counts.failed += spans.length;
            if (failedInARow === 0)
              log()?.warn(
                { err: result.error },
                'spans do not reach their collector, and are left out until they do',
              );
            failedInARow += spans.length;
          }
          done(result);
        });
      },
      shutdown: () => exporter.shutdown(),
      forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve(),
    },
    { maxQueueSize: most },
  );
  return {
    onStart() {},
    onEnd(span) {
      if (waiting >= most) {
        counts.dropped++;
        return;
      }
      waiting++;
      batches.onEnd(span);
    },
    forceFlush: () => batches.forceFlush(),
    shutdown: () => batches.shutdown(),
  };
}

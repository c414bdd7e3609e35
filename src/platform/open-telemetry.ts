import { AsyncLocalStorage } from 'node:async_hooks';
import type { EventEmitter } from 'node:events';
import {
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
  RandomIdGenerator,
  type Sampler,
  SamplingDecision,
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
  kind: keyof typeof SpanKind;
  /** A text is the `traceparent` of a span of another process. Absent: a new trace. */
  parent?: Span | string | undefined;
  /** What it is linked to, each as `traceparent`. */
  links?: string[];
}

/** Spans that wait for the collector, as the standard has it; more are left out. */
const MOST_WAITING = 2048;

type Counts = { exported: number; failed: number; dropped: number };

interface SmallLog {
  warn(fields: object, message: string): void;
  info(fields: object, message: string): void;
}

/**
 * OpenTelemetry's SDK, set up for one process. Nothing of it is registered globally: who wants a span asks for it.
 * This file alone loads the SDK, and is loaded when there is somebody to send spans to.
 */
export async function openTelemetry(config: Config, self: TracedProcess) {
  const counts: Counts = { exported: 0, failed: 0, dropped: 0 };
  let log: SmallLog | undefined;
  const exporter = await createExporter(config.OTEL_EXPORTER_OTLP_PROTOCOL);
  const spanProcessor = createProcessor(exporter, counts, () => log);
  const sampler = createSampler(config);
  const random = new RandomIdGenerator();
  let traceId = '';
  const provider = new BasicTracerProvider({
    resource: describeProcess(self),
    // What is not sampled never gets there, and costs a tenth of what it would.
    sampler: new AlwaysOnSampler(),
    idGenerator: { generateTraceId: () => traceId, generateSpanId: () => random.generateSpanId() },
    spanProcessors: [spanProcessor],
  });
  const tracer = provider.getTracer('penstock', self.version);
  const storage = new AsyncLocalStorage<Span>();
  let present: Span | undefined;
  let lasting = 0;

  /** Until this turn ends, or work that was given has begun. */
  function within<Result>(span: Span | undefined, work: () => Result): Result {
    const before = present;
    present = span;
    try {
      return work();
    } finally {
      present = before;
    }
  }

  const active = (): Span | undefined => present ?? (lasting > 0 ? storage.getStore() : undefined);

  return {
    /** A span that has begun. Who begins it ends it. */
    begin(name: string, { kind, parent, links: linked = [] }: Beginning): Span {
      const links = linked.flatMap(linkTo);
      const context = below(parent);
      const above = trace.getSpanContext(context);
      traceId = above?.traceId ?? random.generateTraceId();
      // What has links and no parent is sampled as if the first of them were its parent.
      const first = above ? undefined : links[0]?.context;
      const asked = first ? trace.setSpanContext(ROOT_CONTEXT, first) : context;
      const of = first?.traceId ?? traceId;
      const { decision } = sampler.shouldSample(asked, of, name, SpanKind[kind], {}, links);
      if (decision === SamplingDecision.RECORD_AND_SAMPLED)
        return tracer.startSpan(name, { kind: SpanKind[kind], links }, context);
      const spanId = random.generateSpanId();
      return trace.wrapSpanContext({ traceId, spanId, traceFlags: TraceFlags.NONE });
    },

    /**
     * Does work as part of a span, up to its first wait: what comes after that knows the span only if it has kept it. Work
     * of the hot path does; it costs nothing there.
     */
    within,

    /**
     * Does work as part of a span to its end, which is that of the answer. Up to Node 22 the process pays for it with each
     * promise, whoever made it, for as long as there is such work: not for the hot path.
     */
    throughout<Result>(span: Span, answer: EventEmitter, work: () => Result): Result {
      lasting++;
      answer.once('close', () => {
        lasting--;
        if (lasting === 0) storage.disable();
      });
      return storage.run(span, work);
    },

    /** The span that the caller works for, as far as that is known. */
    active,

    /** The same, if it is sampled and has not ended. */
    recording(): Span | undefined {
      const span = active();
      return span?.isRecording() ? span : undefined;
    },

    /** A function that is called as part of the present span. */
    bind<Given extends unknown[]>(work: (...given: Given) => void): (...given: Given) => void {
      const span = active();
      return (...given) => within(span, () => work(...given));
    },

    /** The ids of the present span, as lines of the log have them. */
    ids: (): object => idsOf(active()),

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

/** What is no `traceparent` is as good as none. */
function below(parent: Span | string | undefined): Context {
  if (typeof parent === 'object') return trace.setSpan(ROOT_CONTEXT, parent);
  const parsed = parent === undefined ? null : parse(parent);
  return parsed ? trace.setSpanContext(ROOT_CONTEXT, parsed) : ROOT_CONTEXT;
}

const linkTo = (traceparent: string): Link[] => {
  const context = parse(traceparent);
  return context ? [{ context }] : [];
};

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

/** The SDK's batches, in front of which spans are counted that find too many waiting, and behind which those that fail. */
function createProcessor(
  exporter: SpanExporter,
  counts: Counts,
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

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

/** The process that creates the spans. */
export interface TracedProcess {
  /** Name of the process, for example `web` or `worker`. */
  name: string;
  /** Id of the process, the same as in its heartbeat. */
  id: string;
  version: string;
}

export interface Beginning {
  kind: keyof typeof SpanKind;
  /**
   * The parent, or the `traceparent` of a span of another process. If absent, the span starts a new trace.
   */
  parent?: Span | string | undefined;
  /** Spans that this span links to, each as `traceparent`. */
  links?: string[];
}

/** Default of the standard for spans that wait for the collector. Further spans are dropped. */
const DEFAULT_QUEUE_SIZE = 2048;

type Counts = { exported: number; failed: number; dropped: number };

interface SmallLog {
  warn(fields: object, message: string): void;
  info(fields: object, message: string): void;
}

/**
 * Sets up the OpenTelemetry SDK for one process. No part of it is registered globally; callers create spans
 * through the returned object. Only this file imports the SDK, and it is loaded only if a collector is
 * configured.
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
    // Sampling is decided in `begin`: a span that is not sampled never reaches the provider, and costs a
    // tenth of what it would cost there.
    sampler: new AlwaysOnSampler(),
    idGenerator: { generateTraceId: () => traceId, generateSpanId: () => random.generateSpanId() },
    spanProcessors: [spanProcessor],
  });
  const tracer = provider.getTracer('penstock', self.version);
  const storage = new AsyncLocalStorage<Span>();
  let current: Span | undefined;
  let lasting = 0;

  /** Sets the active span for the synchronous part of the work. */
  function withSpan<Result>(span: Span | undefined, work: () => Result): Result {
    const before = current;
    current = span;
    try {
      return work();
    } finally {
      current = before;
    }
  }

  const active = (): Span | undefined => current ?? (lasting > 0 ? storage.getStore() : undefined);

  return {
    /** Starts a span. The caller must end it. */
    begin(name: string, { kind, parent, links: linked = [] }: Beginning): Span {
      const links = linked.flatMap(linkTo);
      const context = contextBelow(parent);
      const above = trace.getSpanContext(context);
      traceId = above?.traceId ?? random.generateTraceId();
      // A span with links and no parent is sampled as if the first link were its parent.
      const first = above ? undefined : links[0]?.context;
      const parentContext = first ? trace.setSpanContext(ROOT_CONTEXT, first) : context;
      const of = first?.traceId ?? traceId;
      const { decision } = sampler.shouldSample(parentContext, of, name, SpanKind[kind], {}, links);
      if (decision === SamplingDecision.RECORD_AND_SAMPLED)
        return tracer.startSpan(name, { kind: SpanKind[kind], links }, context);
      const spanId = random.generateSpanId();
      return trace.wrapSpanContext({ traceId, spanId, traceFlags: TraceFlags.NONE });
    },

    /**
     * Runs work as part of a span, up to its first `await`. Code after that must keep the span itself. It has
     * no cost for the hot path, which uses it.
     */
    withSpan,

    /**
     * Runs work as part of a span until the response closes. Up to Node 22 every promise of the process is
     * slower while such work runs, so do not use it in the hot path.
     */
    throughout<Result>(span: Span, answer: EventEmitter, work: () => Result): Result {
      lasting++;
      answer.once('close', () => {
        lasting--;
        if (lasting === 0) storage.disable();
      });
      return storage.run(span, work);
    },

    /** Returns the active span, if there is one. */
    active,

    /** Returns the active span if it is sampled and has not ended. */
    recording(): Span | undefined {
      const span = active();
      return span?.isRecording() ? span : undefined;
    },

    /** Returns a function that runs as part of the span that is active now. */
    bind<Given extends unknown[]>(work: (...given: Given) => void): (...given: Given) => void {
      const span = active();
      return (...given) => withSpan(span, () => work(...given));
    },

    /** Returns the ids of the active span in the form of the log lines. */
    ids: (): object => idsOf(active()),

    /** Sets the log for failures of the collector. The first failure and the recovery are logged. */
    setLog(given: SmallLog): void {
      log = given;
    },

    /**
     * Returns the number of spans since the start that the collector accepted, that failed, and that were
     * dropped because too many waited.
     */
    counts: () => counts,

    /** Sends the waiting spans; gives up after the given milliseconds. */
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

/** Returns the ids of a span in the form of the log lines. */
export function idsOf(span: Span | undefined): { trace_id?: string; span_id?: string } {
  if (!span) return {};
  const { traceId, spanId } = span.spanContext();
  return { trace_id: traceId, span_id: spanId };
}

/** Returns the W3C `traceparent` of a span; undefined if the span is not sampled. */
export function traceparentOf(span: Span | undefined): string | undefined {
  if (!span) return undefined;
  const { traceId, spanId, traceFlags } = span.spanContext();
  return traceFlags & TraceFlags.SAMPLED ? `00-${traceId}-${spanId}-01` : undefined;
}

/** Marks a span as failed. The message of the error is not recorded, because it may quote user data. */
export function failSpan(span: Span, type: string): void {
  span.setAttribute('error.type', type).setStatus({ code: SpanStatusCode.ERROR });
}

/** Returns the context below a parent. An invalid `traceparent` counts as absent. */
function contextBelow(parent: Span | string | undefined): Context {
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

/** Describes the process. Values of the environment take precedence. */
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
  // The exporter reads its address, headers, timeout, compression and certificates from the standard
  // variables.
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

/**
 * Creates the SDK's batch processor. It counts spans that are dropped because the queue is full, and spans
 * whose export failed.
 */
function createProcessor(
  exporter: SpanExporter,
  counts: Counts,
  log: () => SmallLog | undefined,
): SpanProcessor {
  const maxQueued = getNumberFromEnv('OTEL_BSP_MAX_QUEUE_SIZE') ?? DEFAULT_QUEUE_SIZE;
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
                'spans do not reach their collector, and are omitted until they do',
              );
            failedInARow += spans.length;
          }
          done(result);
        });
      },
      shutdown: () => exporter.shutdown(),
      forceFlush: () => exporter.forceFlush?.() ?? Promise.resolve(),
    },
    { maxQueueSize: maxQueued },
  );
  return {
    onStart() {},
    onEnd(span) {
      if (waiting >= maxQueued) {
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

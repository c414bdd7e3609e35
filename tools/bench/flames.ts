/**
 * Draws flame graphs of web and worker at full load from `node --cpu-prof`, by default with 75 objects per
 * request. `--traced` traces every request and sends the spans to a collector of the bench; `--streamed` also
 * delivers all objects to streams.
 *
 *   npm run flames
 *   npm run flames -- --objects 1 --traced
 *
 * Writes generated/flame-edge.svg and generated/flame-worker.svg, and prints the functions with the most
 * processor time of their own. Profiling slows the processes down, so use `npm run bench` for figures.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Command, Option } from 'commander';
import { packageRoot } from '../../src/platform/files.ts';
import { runCommand } from '../../test/setup/run-command.ts';
import { type TrafficKind, trafficKinds } from '../load/traffic.ts';
import { startEnvironment } from './environment.ts';
import { drawFlames } from './flame/draw.ts';
import { heaviest } from './flame/heaviest.ts';
import { type CpuProfile, type Span, sumStacks } from './flame/profile.ts';
import { startOurs } from './ours.ts';
import { measurePipeline } from './pipeline.ts';
import { describeFigure } from './report.ts';
import { seedUsers } from './seed.ts';
import { CONNECTIONS_OF_1, CONNECTIONS_OF_75, sizeOf } from './size.ts';
import { warmUp } from './warm-up.ts';

const drawings = [
  { process: 'web', file: 'flame-edge.svg' },
  { process: 'worker', file: 'flame-worker.svg' },
];

interface Options {
  output: string;
  seconds: number;
  objects: number;
  kind: TrafficKind | undefined;
  traced: boolean;
  streamed: boolean;
}

async function main(): Promise<void> {
  const options = new Command('npm run flames --')
    .description('Draw a flame graph of web and of worker at full load.')
    .option('--seconds <number>', 'length of the load', Number, 8)
    .option('--objects <number>', 'objects per request', Number, 75)
    .addOption(new Option('--kind <kind>', 'objects of one kind alone').choices(trafficKinds))
    .option('--traced', 'while every request is traced', false)
    .option('--streamed', 'while all of it is sent on to two webhooks', false)
    .option('--output <folder>', 'where the drawings go', path.join(packageRoot, 'generated'))
    .parse(process.argv)
    .opts<Options>();
  const { output, seconds, objects } = options;
  if (!(seconds > 0 && objects >= 1)) throw new Error('--seconds and --objects are numbers above 0');
  const what = `${objects} per request${options.traced ? ', traced' : ''}${options.streamed ? ', streamed' : ''}`;
  const environment = await startEnvironment();
  try {
    const profiles = path.join(environment.folder, 'profiles');
    const span = await profileLoad(profiles, options, environment);
    mkdirSync(output, { recursive: true });
    for (const { process: name, file } of drawings) {
      const profile: CpuProfile = JSON.parse(readFileSync(path.join(profiles, `${name}.cpuprofile`), 'utf8'));
      const stacks = sumStacks(profile, span);
      writeFileSync(path.join(output, file), drawFlames(stacks, `${name}, ${what}`));
      process.stdout.write(`\n${name} (${file}), share of its processor time in the function itself\n`);
      for (const { share, frame } of heaviest(stacks))
        process.stdout.write(`${(share * 100).toFixed(1).padStart(6)} %  ${frame}\n`);
    }
  } finally {
    await environment.stop();
  }
}

/**
 * Runs the load and writes the profiles to the folder. @returns the time range of the load without its
 * warm-up
 */
async function profileLoad(
  profiles: string,
  { seconds, objects, kind, traced, streamed }: Options,
  environment: Awaited<ReturnType<typeof startEnvironment>>,
): Promise<Span> {
  const size = sizeOf(seconds);
  // A profiled machine is slower and must not end the measurement with a 503.
  const settings = {
    QUEUE_TIMEOUT_MS: '5000',
    ...(traced ? { OTEL_EXPORTER_OTLP_ENDPOINT: await environment.collector() } : {}),
  };
  const placement = {
    name: 'flames',
    redis: 0,
    profiles,
    ...(streamed && { streamsTo: await environment.collector() }),
  };
  const ours = await startOurs(environment, settings, placement);
  try {
    await seedUsers(ours, size.users);
    await warmUp(ours, environment, size, Number.POSITIVE_INFINITY);
    const from = now();
    const connections = objects === 1 ? CONNECTIONS_OF_1 : CONNECTIONS_OF_75;
    const kinds = kind ? { kinds: [kind], spread: 'evenly' as const } : {};
    const shape = { objects, connections, ...kinds, maxRequests: Number.POSITIVE_INFINITY };
    const figure = await measurePipeline(ours, environment, { ...size, ...shape });
    process.stdout.write(
      describeFigure(
        1,
        `ours-${objects}${traced ? '-traced' : ''}${streamed ? '-streamed' : ''}, watched`,
        figure,
      ),
    );
    return { from, to: now() };
  } finally {
    await ours.stop();
  }
}

/** Returns microseconds on the clock of the profiles. */
function now(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

await runCommand(main);

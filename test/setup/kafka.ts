import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { Admin } from '@platformatic/kafka';
import { packageRoot } from '../../src/platform/files.ts';
import { findJava, findMaven } from './installed.ts';
import { spawnOnLeash } from './leash.ts';
import { leaveBehind, temporaryFolder } from './left-behind.ts';
import { leasePort } from './ports.ts';
import { waitUntil } from './wait-until.ts';

const KAFKA = '4.1.2';

/** Class path that Maven resolved, kept until the next `npm ci`. */
const kept = path.join(packageRoot, 'node_modules', '.cache', `kafka-${KAFKA}.classpath`);

const run = promisify(execFile);

export interface TestKafka {
  /** `host:port`. */
  broker: string;
  /** Address of the same broker with authentication: user `penstock`, password `secret`, PLAIN. */
  guarded: string;
  admin: Admin;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Restarts it on the same ports and with the same data. */
  start(): Promise<void>;
}

/**
 * Starts Apache Kafka, one process as broker and controller; downloaded from Maven once after each `npm ci`.
 */
export async function startKafka(): Promise<TestKafka> {
  const java = [await findJava(), '-Xmx256m', '-XX:TieredStopAtLevel=1', '-cp', await findClasspath()];
  const dir = temporaryFolder('penstock-kafka-');
  const [open, guarded, controller] = await Promise.all([leasePort(), leasePort(), leasePort()]);
  const settings = path.join(dir, 'server.properties');
  writeFileSync(settings, describe({ dir, open, guarded, controller }));
  const format = [
    'kafka.tools.StorageTool',
    'format',
    '--cluster-id',
    'bm90aGluZ3NvZXZlcnl0aA',
    '-c',
    settings,
  ];
  await run(java[0]!, [...java.slice(1), ...format]);
  const broker = `127.0.0.1:${open}`;
  const admin = new Admin({ clientId: 'tests', bootstrapBrokers: [broker], retries: 0, strict: true });
  leaveBehind(() => admin.close());
  let end: (() => Promise<unknown>) | undefined;

  async function start() {
    const { child, exit } = spawnOnLeash([...java, 'kafka.Kafka', settings], { stdout: 'ignore' });
    end = () => {
      child.kill('SIGKILL');
      return exit;
    };
    await waitUntil(() => answers(admin), { what: `Kafka at ${broker}`, deadline: 60_000 });
  }

  leaveBehind(() => end?.());
  await start();
  return {
    broker,
    guarded: `127.0.0.1:${guarded}`,
    admin,
    start,
    async kill() {
      await end?.();
    },
  };
}

async function answers(admin: Admin): Promise<boolean> {
  try {
    await admin.metadata({ topics: [], forceUpdate: true });
    return true;
  } catch {
    return false;
  }
}

/** Resolves the class path with Maven, which caches the files in its own folder. */
async function findClasspath(): Promise<string> {
  if (!existsSync(kept)) {
    const dir = temporaryFolder('penstock-maven-');
    const artifact = (group: string, id: string, version: string) =>
      `<dependency><groupId>${group}</groupId><artifactId>${id}</artifactId><version>${version}</version></dependency>`;
    writeFileSync(
      path.join(dir, 'pom.xml'),
      `<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>${artifact('org.apache.kafka', 'kafka_2.13', KAFKA)}${artifact('org.slf4j', 'slf4j-nop', '1.7.36')}</dependencies></project>`,
    );
    mkdirSync(path.dirname(kept), { recursive: true });
    const goal = ['dependency:build-classpath', '-DincludeScope=runtime', `-Dmdep.outputFile=${kept}`];
    await run(await findMaven(), ['-q', '-B', ...goal], { cwd: dir });
  }
  return readFileSync(kept, 'utf8').trim();
}

interface Place {
  dir: string;
  open: number;
  guarded: number;
  controller: number;
}

function describe({ dir, open, guarded, controller }: Place): string {
  return Object.entries({
    'process.roles': 'broker,controller',
    'node.id': 1,
    'controller.quorum.voters': `1@127.0.0.1:${controller}`,
    listeners: `OPEN://127.0.0.1:${open},GUARDED://127.0.0.1:${guarded},CONTROLLER://127.0.0.1:${controller}`,
    'advertised.listeners': `OPEN://127.0.0.1:${open},GUARDED://127.0.0.1:${guarded}`,
    'listener.security.protocol.map': 'OPEN:PLAINTEXT,GUARDED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT',
    'inter.broker.listener.name': 'OPEN',
    'controller.listener.names': 'CONTROLLER',
    'sasl.enabled.mechanisms': 'PLAIN',
    'listener.name.guarded.plain.sasl.jaas.config':
      'org.apache.kafka.common.security.plain.PlainLoginModule required user_penstock="secret";',
    'log.dirs': path.join(dir, 'data'),
    'offsets.topic.replication.factor': 1,
    'auto.create.topics.enable': 'false',
  })
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

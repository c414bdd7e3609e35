import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PrismaPg } from '@prisma/adapter-pg';
import { packageRoot } from '../../../src/platform/files.ts';

/** The methods of the generated client that the worker uses. */
export interface NaiveClient {
  profile: {
    upsert(query: {
      where: { userId: string };
      create: object;
      update: object;
      select?: object;
    }): Promise<{ id: bigint }>;
  };
  event: { create(query: { data: object }): Promise<unknown> };
  purchase: { create(query: { data: object }): Promise<unknown> };
}

const generated = path.join(packageRoot, 'dist/tools/bench/naive/client/index.js');

/** Generates the Prisma client of schema.prisma, which takes about two seconds. */
export function generateNaiveClient(): void {
  const prisma = path.join(packageRoot, 'node_modules/.bin/prisma');
  const schema = path.join(packageRoot, 'tools/bench/naive/schema.prisma');
  execFileSync(prisma, ['generate', '--no-hints', '--schema', schema], {
    cwd: packageRoot,
    env: { ...process.env, CHECKPOINT_DISABLE: '1' },
    stdio: 'pipe',
  });
}

/** @param size connections of its pool */
export function openNaiveClient(databaseUrl: string, size: number): NaiveClient {
  const { PrismaClient } = createRequire(import.meta.url)(generated) as {
    PrismaClient: new (options: object) => NaiveClient;
  };
  return new PrismaClient({ adapter: new PrismaPg({ connectionString: databaseUrl, max: size }) });
}

import { defineConfig } from 'prisma/config';

// `prisma generate` looks for a schema engine that it never starts, and would download one. Migrations run
// through npm's WebAssembly build of that engine (src/store/migrations.ts), so any existing file will do.
process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= process.execPath;

const url = process.env.DATABASE_URL;

export default defineConfig({
  schema: 'prisma/schema.prisma',
  migrations: { path: 'prisma/migrations' },
  // For `npx prisma studio`. The processes and the migrations do not read this file.
  ...(url && { datasource: { url } }),
});

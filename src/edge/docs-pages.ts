import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { Express } from 'express';
import helmet from 'helmet';
import type { OpenApiDocument } from './openapi.ts';
import { addPage, refuse } from './other-requests.ts';

/** The files of swagger-ui-dist that the page needs, with their places under /docs. */
const ASSETS = ['swagger-ui.css', 'swagger-ui-bundle.js', 'favicon-32x32.png'];

const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Penstock API</title>
    <link rel="icon" href="/docs/favicon-32x32.png">
    <link rel="stylesheet" href="/docs/swagger-ui.css">
  </head>
  <body>
    <noscript>The same as JSON: <a href="/openapi.json">/openapi.json</a></noscript>
    <div id="swagger-ui"></div>
    <script src="/docs/swagger-ui-bundle.js"></script>
    <script src="/docs/start.js"></script>
  </body>
</html>
`;

const START = `SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#swagger-ui',
  deepLinking: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
});
`;

/**
 * Nothing comes from anywhere but this server, so that the page works offline. Swagger UI's components set
 * styles on elements and draw their icons from data. No rule asks for https: TLS is the proxy's affair.
 */
const securityHeaders = helmet({
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      defaultSrc: ["'none'"],
      scriptSrc: ["'self'"],
      styleSrc: ["'self'", "'unsafe-inline'"],
      imgSrc: ["'self'", 'data:'],
      connectSrc: ["'self'"],
      baseUri: ["'none'"],
      formAction: ["'none'"],
      frameAncestors: ["'none'"],
    },
  },
  strictTransportSecurity: false,
});

/** /openapi.json, and /docs for people: Swagger UI on it, from the npm package. */
export function addDocsPages(app: Express, document: OpenApiDocument): void {
  const json = JSON.stringify(document);
  addPage(app, '/openapi.json', (_request, response) => {
    response.type('application/json').send(json);
  });

  // Whoever opens the address of the service in a browser is told where to look.
  app.get('/', (_request, response) => refuse(response, 'nothingHere'));

  app.use('/docs', securityHeaders);
  addPage(app, '/docs', (_request, response) => {
    response.type('html').send(PAGE);
  });
  addPage(app, '/docs/start.js', (_request, response) => {
    response.type('text/javascript').send(START);
  });
  // Only the path: the package's entry would load the whole bundle into this process.
  const folder = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
  for (const file of ASSETS) {
    addPage(app, `/docs/${file}`, (_request, response) => {
      response.sendFile(join(folder, file), { maxAge: '1d' });
    });
  }
}

import type { RequestHandler } from 'express';
import helmet from 'helmet';
import type { LinkSettings } from '../operations/operation.ts';
import { readLink } from '../preferences/link.ts';

/**
 * What stands on the page belongs to the customer. It runs no script, sends its form to its own link and nowhere
 * else, is framed by nobody, and lives in an origin of its own: from there no page of this server, nor of any
 * other, can be read. The link never leaves in a Referer.
 */
export function preferencePolicy(links: LinkSettings): RequestHandler[] {
  return [
    helmet({
      contentSecurityPolicy: {
        useDefaults: false,
        directives: {
          defaultSrc: ["'none'"],
          styleSrc: ["'unsafe-inline'", 'https:'],
          imgSrc: ['https:', 'data:'],
          fontSrc: ['https:', 'data:'],
          formAction: [(request) => formTarget((request as { params?: { token?: string } }).params, links)],
          frameAncestors: ["'none'"],
          baseUri: ["'none'"],
          sandbox: ['allow-forms', 'allow-popups', 'allow-popups-to-escape-sandbox'],
        },
      },
      referrerPolicy: { policy: 'no-referrer' },
      frameguard: { action: 'deny' },
      // The sandbox gives the page an origin of its own, which is more.
      originAgentCluster: false,
      // TLS is the proxy's affair.
      strictTransportSecurity: false,
    }),
    (_request, response, next) => {
      response.setHeader('Cache-Control', 'no-store');
      response.setHeader('X-Robots-Tag', 'noindex, nofollow');
      next();
    },
  ];
}

/** Only what can be a token gets into the header. */
function formTarget(params: { token?: string } | undefined, links: LinkSettings): string {
  const token = params?.token ?? '';
  return readLink(token) ? links.urlOf(token) : "'none'";
}

import { type BrowserContext, chromium } from 'playwright-core';
import { temporaryFolder } from './fixtures.ts';
import { findChromium } from './installed.ts';

/** Flags for a browser without telemetry, screen and sandbox. */
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Opens a browser with a new profile. */
export async function openBrowser({ javaScriptEnabled = true } = {}): Promise<BrowserContext> {
  return chromium.launchPersistentContext(temporaryFolder('penstock-browser-'), {
    executablePath: await findChromium(),
    headless: true,
    javaScriptEnabled,
    args: ARGUMENTS,
  });
}

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { temporaryFolder } from './left-behind.ts';

export interface Certificate {
  key: Buffer;
  cert: Buffer;
}

/** Creates a self-signed certificate, for clients that do not check the name. */
export function makeCertificate(): Certificate {
  const folder = temporaryFolder('penstock-certificate-');
  const words = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=proxy';
  const files = ['-keyout', 'key', '-out', 'cert'];
  execFileSync('openssl', [...words.split(' '), ...files], { cwd: folder, stdio: 'pipe' });
  const read = (name: string) => readFileSync(path.join(folder, name));
  return { key: read('key'), cert: read('cert') };
}

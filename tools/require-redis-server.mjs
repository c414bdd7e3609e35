// The tests run against a real redis-server. Where there is none on the PATH: installed, if that is possible
// without asking anyone; else one line that says what to install.
import { spawnSync } from 'node:child_process';

const has = (command, flag) => spawnSync(command, [flag], { stdio: 'ignore' }).status === 0;

function fail() {
  process.stderr.write(
    'redis-server 7 or newer is not on the PATH: install it (Debian and Ubuntu: redis-server, Homebrew: redis)\n',
  );
  process.exit(1);
}

if (!has('redis-server', '--version')) {
  if (process.getuid?.() !== 0 || !has('apt-get', '--version')) fail();
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  // Refused by policy-rc.d or not: the tests start servers of their own, on ports of their own.
  for (const args of [['update'], ['install', '--yes', '--no-install-recommends', 'redis-server']]) {
    if (spawnSync('apt-get', ['-qq', ...args], { env, stdio: 'inherit' }).status !== 0) fail();
  }
  if (!has('redis-server', '--version')) fail();
}

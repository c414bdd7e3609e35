// Checks that redis-server is on the PATH, because the tests run against a real server. If it is missing, this script
// installs it with apt-get. If that is not possible, or if the user is not root, it prints what to install and exits with 1.
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
  // The service of the package may start, or policy-rc.d may prevent it: the tests use their own servers on other ports.
  for (const args of [['update'], ['install', '--yes', '--no-install-recommends', 'redis-server']]) {
    if (spawnSync('apt-get', ['-qq', ...args], { env, stdio: 'inherit' }).status !== 0) fail();
  }
  if (!has('redis-server', '--version')) fail();
}

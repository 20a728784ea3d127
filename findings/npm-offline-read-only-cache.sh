#!/usr/bin/env bash
# npm 11.6.2: `npm ci --offline` does not find packages in a read-only cache if the lock file has no `resolved` addresses.
#
# The lock file is made with npm's own option `omit-lockfile-registry-resolved`. With a cache that npm may write, the offline installation
# works. With the same cache mounted read-only, it ends with ENOTCACHED, "no cached response is available", which does not name the cause.
# With `resolved` in the lock file, a read-only cache is enough. So a verification that may not change the cache of packages needs a lock
# file with addresses.
#
# Seen 2026-11-30 with Node.js 20.20, npm 11.6.2, ms 2.1.3. Needs `unshare` of util-linux. The script fails if that changes.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --prefix "$folder/tool" npm@11.6.2 >/dev/null
npm="$folder/tool/node_modules/.bin/npm"
export npm_config_cache="$folder/cache" npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false

offline() { # NAME COMMAND...: install without the network, and print how that ends
  rm -rf node_modules
  if "${@:2}" ci --offline --loglevel=error >"$folder/said" 2>&1; then
    echo "$1: installed"
  else
    echo "$1: $(grep -o 'code E[A-Z]*' "$folder/said" | head -n 1)"
  fi
}

read_only() { # COMMAND...: run it where the cache is mounted read-only
  unshare --user --map-root-user --mount bash -c \
    'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@"' mounts "$folder/cache" "$@"
}

for omits in false true; do
  mkdir "$folder/$omits"
  cd "$folder/$omits"
  echo '{"name": "a", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}}' >package.json
  "$npm" install --silent --omit-lockfile-registry-resolved="$omits" >/dev/null
  rm -rf node_modules
  "$npm" ci --silent >/dev/null # the cache has what this lock file needs
  offline "omits addresses: $omits, cache writable" "$npm"
  offline "omits addresses: $omits, cache read-only" read_only "$npm"
done >"$folder/seen"

diff "$folder/seen" - <<'SEEN'
omits addresses: false, cache writable: installed
omits addresses: false, cache read-only: installed
omits addresses: true, cache writable: installed
omits addresses: true, cache read-only: code ENOTCACHED
SEEN
cat "$folder/seen"

#!/usr/bin/env bash
# Runs the README's block "Without a GPU" as it stands there, so that it cannot go
# stale: in an empty folder where build/release is the build folder given.
set -euo pipefail

build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/build"
ln -s "$build" "$folder/build/release"
ln -s "$root/examples" "$folder/examples"

awk '/^## /{section=$0} section=="## Without a GPU" && /^```/{fence++; next}
     section=="## Without a GPU" && fence==1' "$root/README.md" >"$folder/block.sh"
[[ -s "$folder/block.sh" ]] || { echo "README.md has no block 'Without a GPU'" >&2; exit 1; }
cd "$folder"
bash -euo pipefail -x block.sh

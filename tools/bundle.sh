#!/usr/bin/env bash
# Puts what was built into a folder that can be copied to a GPU host which has none of our packages:
#
#   tools/bundle.sh BUILD FOLDER
#
# The programs, the gate library and beside them, in lib/, the shared libraries that they need, but for those of the C and
# C++ compiler, which every host has: the host's must be as new as this machine's.
set -euo pipefail
[[ $# == 2 ]] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$1 folder=$2

rm -rf "$folder"
mkdir -p "$folder/lib"
cp "$build"/apps/divvy/divvy "$build"/apps/divvy-worker/divvy-worker "$build"/src/gate/libdivvy_gate.so "$folder"
for program in divvy divvy-worker; do
  ldd "$folder/$program" | awk '/=> \// { print $1, $3 }' | while read -r name path; do
    case $name in
      libc.so.* | libm.so.* | libstdc++.so.* | libgcc_s.so.* | libdl.so.* | libpthread.so.* | librt.so.*) ;;
      *) cp -n "$path" "$folder/lib/$name" ;;
    esac
  done
  patchelf --force-rpath --set-rpath '$ORIGIN/lib' "$folder/$program"
done
find "$folder" -maxdepth 1 -type f -exec strip --strip-debug {} +
echo "$folder: $(du -sh "$folder" | cut -f1), with $(find "$folder/lib" -type f | wc -l) shared libraries"

#!/bin/sh
# Builds the gate library with nothing but a compiler: build.sh OUTPUT [COMPILER FLAGS]
# (The C driver: it compiles C++ and links no C++ library.) For GPU hosts that have no more than that; elsewhere the project's own build makes it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=$1
shift
exec "${CC:-cc}" -std=c++20 -O2 -g1 -fPIC -shared -fno-exceptions -fno-rtti -fno-threadsafe-statics \
  -fvisibility=hidden -ftls-model=initial-exec -Wl,-soname,libdivvy_gate.so -Wl,-z,defs "$@" \
  -I"$here/../.." -o "$output" "$here"/*.cc "$here"/../alone.cc "$here"/../board.cc "$here"/../costs.cc "$here"/../hold_trials.cc "$here"/../latency.cc \
  "$here"/../marking.cc "$here"/../ops.cc "$here"/../ops_log.cc "$here"/../ops_pace.cc "$here"/../slices.cc "$here"/../slo.cc "$here"/../turns.cc -ldl -lpthread -lc

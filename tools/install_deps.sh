#!/usr/bin/env bash
# Installs the Debian packages that Divvy is built with, and says which.
#
#   tools/install_deps.sh          what building, testing and the demo need
#   tools/install_deps.sh --lint   clang-19 tools as well, for `make lint`
#   tools/install_deps.sh --bundle patchelf as well, for `make bundle`
#
# Does nothing, and needs no network, when all are there.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache make git python3 binutils # toolchain
  libcli11-dev         # command lines
  libexpected-dev      # tl::expected
  libfmt-dev           # text formatting
  libyaml-cpp-dev      # plans and fleets
  coinor-libcbc-dev libgfortran-12-dev zlib1g-dev # the planner's MILP solver, and its archives' needs
  nlohmann-json3-dev   # -o json, journals
  libssl-dev libnghttp2-dev # TLS and HTTP/2, for the server; gzip is zlib's, above
  libgtest-dev libgmock-dev # tests
  python3-grpcio python3-protobuf protobuf-compiler # clients of the server, in tests
  libglpk-dev          # a second MILP solver, for tests of the first
  libbenchmark-dev     # make bench
)
case "${1:-}" in
  --lint) packages+=(clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev) ;;
  --bundle) packages+=(patchelf) ;;
esac

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == installed ]] || missing+=("$package")
done
if (( ${#missing[@]} == 0 )); then
  echo "deps: all ${#packages[@]} Debian packages are installed"
  exit 0
fi

echo "deps: installing with apt: ${missing[*]}"
as_root=()
if (( EUID != 0 )); then
  command -v sudo >/dev/null || { echo "deps: run this as root, or install sudo" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
echo "deps: done"

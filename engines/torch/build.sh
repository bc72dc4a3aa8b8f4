#!/usr/bin/env bash
# Builds libdivvy_engine_torch.so against a libtorch of your choice, with a compiler and nothing else.
#
#   engines/torch/build.sh TORCH_DIR OUTPUT.so [CUDA_DIR]
#
# TORCH_DIR has include/ and lib/: the unpacked libtorch, or
#   $(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))').
# With CUDA when it is a libtorch with CUDA and CUDA_DIR (default /usr/local/cuda) has the headers.
set -euo pipefail

if [[ $# -lt 2 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
torch=$1
output=$2
cuda=${3:-/usr/local/cuda}
here=$(cd "$(dirname "$0")" && pwd)
if [[ ! -e $torch/include/torch/script.h || ! -e $torch/lib/libc10.so ]]; then
  echo "build.sh: $torch has no include/torch/script.h or no lib/libc10.so: that is no libtorch" >&2
  exit 1
fi

flags=(-std=c++20 -O2 -fPIC -shared -fvisibility=hidden -I"$here/../../include"
  -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include")
libraries=(-L"$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10)

# Packages of PyTorch before 2.6 were built with the strings of before C++11.
if grep -aq '_ZN3c105ErrorC[12]ENS_14SourceLocationENSt7__cxx11' "$torch/lib/libc10.so"; then
  flags+=(-D_GLIBCXX_USE_CXX11_ABI=1)
else
  flags+=(-D_GLIBCXX_USE_CXX11_ABI=0)
fi

headers=
for candidate in "$cuda/include" "$torch"/../nvidia/cuda_runtime/include "$torch"/../nvidia/cu*/include; do
  if [[ -e $candidate/cuda_runtime_api.h ]]; then
    headers=$candidate
    break
  fi
done
if [[ -e $torch/lib/libc10_cuda.so && -n $headers ]]; then
  flags+=(-DDIVVY_TORCH_CUDA -isystem "$headers")
  libraries+=(-ltorch_cuda -lc10_cuda)
  for library in "$torch"/../nvidia/cuda_runtime/lib "$torch"/../nvidia/cu*/lib "$cuda/lib64"; do
    if [[ -e $library/libcudart.so || -n $(compgen -G "$library/libcudart.so.*" || true) ]]; then
      libraries+=(-Wl,-rpath-link,"$library")
    fi
  done
  echo "build.sh: with CUDA ($headers)"
elif [[ -e $torch/lib/libc10_cuda.so ]]; then
  echo "build.sh: no cuda_runtime_api.h under $cuda: building for the CPU alone" >&2
fi

"${CXX:-g++}" "${flags[@]}" "$here"/engine.cc "$here"/graphs.cc "$here"/model.cc -o "$output" "${libraries[@]}"
echo "build.sh: wrote $output"

#!/usr/bin/env bash
# Installs what building xfc needs (on Debian 12; calls apt only if a package is missing), and builds xfc in build/.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ cmake ninja-build ccache python3 python3-pip python3-venv git
  llvm-22-dev libmlir-22-dev mlir-22-tools llvm-22-tools lld-22 liblld-22-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev libgtest-dev zlib1g-dev libzstd-dev
  libevent-dev python3-markdown-it)
tests=false
case " $* " in *" -DXFC_BUILD_TESTS=ON "*) tests=true; packages+=(clang-22 clang-format-22 clang-tidy-22 libclang-rt-22-dev openmpi-bin mpich) ;; esac

# Installs those of the packages that are missing.
install_missing() {
  local missing=() root=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "error: these Debian packages are missing and installing them needs root: ${missing[*]}" >&2; return 1; }
    root=(sudo)
  fi
  echo "installing ${missing[*]}"
  "${root[@]}" apt-get update -qq && "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
install_missing "${packages[@]}"
! $tests || install_missing chromium-headless-shell || echo "note: there is no browser, so the test of the server's page will be skipped"

# Warnings are errors with Debian 12's GCC, which has none to show; so one build serves everybody who calls this.
werror=OFF
case "$("${CXX:-g++}" -dumpversion)" in 12*) werror=ON ;; esac
cmake --preset release -DXFC_WERROR=$werror "$@" >/dev/null
cmake --build --preset release

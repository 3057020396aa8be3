#!/usr/bin/env bash
# Makes the packages of xfc in a folder: a Debian package, a tarball and a Python wheel. docs/packages.md says what they need.
#   package.sh OUT [--build FOLDER]
# FOLDER (default: build) is built first if nothing has been built there.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { echo "usage: package.sh OUT [--build FOLDER]" >&2; exit 2; }
out=${1:-} build=build
[ -n "$out" ] || usage
shift
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?}; shift 2 ;;
    *) usage ;;
  esac
done
[ -e "$build/CMakeCache.txt" ] || .ci/setup.sh -DXFC_BUILD_TESTS=OFF
cmake --build "$build" --target xfc-static

# What all of them hold: bin/xfc, lib/xfc with what it links into executables, share/xfc with the models, manual and completions.
stage=$build/package
root=$stage/root
rm -rf "$root" "$stage/deb"
for component in static Unspecified; do cmake --install "$build" --prefix "$root" --component $component --strip >/dev/null; done
xfc=$root/bin/xfc
version=$("$xfc" --version | cut -d' ' -f2)
mkdir -p "$root/share/man/man1" "$root/share/bash-completion/completions" "$root/share/zsh/vendor-completions" "$root/share/fish/vendor_completions.d"
"$xfc" man | gzip -9n >"$root/share/man/man1/xfc.1.gz"
"$xfc" completion bash >"$root/share/bash-completion/completions/xfc"
"$xfc" completion zsh >"$root/share/zsh/vendor-completions/_xfc"
"$xfc" completion fish >"$root/share/fish/vendor_completions.d/xfc.fish"

# The same commit gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH XZ_OPT=-0
mkdir -p "$out"
rm -f "$out"/xfc_*.deb "$out"/xfc-*.tar.xz "$out"/xfc-*.whl
tar -C "$root" --transform "s,^\.,xfc-$version," --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
  -cJf "$out/xfc-$version.tar.xz" .

deb=$stage/deb
mkdir -p "$deb/DEBIAN"
cp -al "$root" "$deb/usr"
cat >"$deb/DEBIAN/control" <<END
Package: xfc
Version: $version
Architecture: amd64
Maintainer: The authors of xfc
Installed-Size: $(du -sk "$deb/usr" | cut -f1)
Depends: libc6 (>= 2.36)
Section: devel
Priority: optional
Description: compiles Transformers from JSON into executables that train and translate
 xfc turns an encoder-decoder Transformer described in JSON into one native
 executable that trains it, translates with it and scores with it. It contains
 LLVM, MLIR and lld, and needs no other compiler or linker.
END
dpkg-deb --root-owner-group -Zxz -z0 --build "$deb" "$out/xfc_${version}_amd64.deb" >/dev/null
python3 .ci/wheel.py "$root" "$version" "$out"
ls -l "$out" | awk 'NR > 1 { printf "%s: %.1f MB\n", $9, $5 / 1e6 }'

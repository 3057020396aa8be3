"""Writes the Python wheel of xfc.

usage: wheel.py ROOT VERSION OUT

ROOT holds bin/xfc, lib/xfc and share/xfc, which become parts of the package in python/xfc: xfc finds the others beside itself there.
"""
import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile

SOURCES = pathlib.Path(__file__).resolve().parent.parent
# What it compiles needs glibc 2.36, which pip compares with the machine's. Any Python 3.8 or later will do: there is no extension module.
TAG = "py3-none-manylinux_2_36_x86_64"


def main():
    root, version, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    information = f"xfc-{version}.dist-info"
    files = [(f"xfc/{path.name}", path.read_bytes(), 0o644) for path in sorted((SOURCES / "python/xfc").iterdir()) if path.is_file()]
    for folder in ("bin", "lib/xfc", "share/xfc"):
        for path in sorted(path for path in (root / folder).rglob("*") if path.is_file()):
            files.append((f"xfc/{path.relative_to(root)}", path.read_bytes(), path.stat().st_mode & 0o777))
    files.append((f"{information}/licenses/LICENSE", (SOURCES / "LICENSE").read_bytes(), 0o644))
    files.append((f"{information}/licenses/copyright", (root / "share/doc/xfc/copyright").read_bytes(), 0o644))
    files.append((f"{information}/WHEEL", f"Wheel-Version: 1.0\nGenerator: xfc\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(), 0o644))
    files.append((f"{information}/METADATA", (
        f"Metadata-Version: 2.1\nName: xfc\nVersion: {version}\nSummary: compiles Transformers from JSON into executables that train and translate\n"
        "License: MIT\nRequires-Python: >=3.8\nClassifier: Typing :: Typed\nClassifier: Operating System :: POSIX :: Linux\n").encode(), 0o644))
    files.append((f"{information}/entry_points.txt", b"[console_scripts]\nxfc = xfc.toolchain:main\n", 0o644))
    record = f"{information}/RECORD"
    lines = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n" for name, data, _ in files]
    files.append((record, "".join([*lines, f"{record},,\n"]).encode(), 0o644))
    with zipfile.ZipFile(out / f"xfc-{version}-{TAG}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data, mode in files:
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            wheel.writestr(entry, data)


if __name__ == "__main__":
    main()

"""Checks that every C++ file is formatted according to .clang-format, by the one version whose output is committed.

usage: format.py ROOT CLANG_FORMAT    (`clang-format-22 -i FILE...` formats the files it names)
"""
import pathlib
import subprocess
import sys

FOLDERS = ("compiler", "runtime", "tests")


def main():
    root, tool = pathlib.Path(sys.argv[1]), sys.argv[2]
    if not pathlib.Path(tool).exists():
        sys.exit("clang-format-22 was not found: apt-get install clang-format-22")
    files = sorted(str(path.relative_to(root)) for folder in FOLDERS for suffix in ("*.cpp", "*.h") for path in (root / folder).rglob(suffix))
    if not files:
        sys.exit(f"no C++ file lies below {root}")
    done = subprocess.run([tool, "--dry-run", "-Werror", *files], cwd=root, capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in done.stderr.splitlines() if ": error: " in line})
    if wrong:
        sys.exit("not formatted; clang-format-22 -i " + " ".join(wrong))
    if done.returncode:
        sys.exit(done.stderr.strip())
    print(f"{len(files)} files are formatted")


if __name__ == "__main__":
    main()

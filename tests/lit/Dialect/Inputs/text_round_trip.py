"""Checks that the printed form of IR is complete: for each .mlir file of the suite, it parses back to the same IR.

`--verify-roundtrip`, which every %xfc-opt of the suite has, only goes through bytecode. Files with IR that must be rejected are skipped.

usage: text_round_trip.py XFC_OPT FOLDER
"""
import pathlib
import subprocess
import sys


def run(tool, text, *options):
    """The tool's output, or None if it rejects the text, and its errors."""
    words = [tool, "--split-input-file", "--output-split-marker=// -----", *options]
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=60)
    return (done.stdout if done.returncode == 0 else None), done.stderr


def check(tool, text):
    """An error message, or None. A file that does not parse must say which errors it expects."""
    printed, error = run(tool, text)
    if printed is None:
        return None if "expected-error" in text else error
    again, error = run(tool, printed, "--mlir-print-op-generic")
    if again is None:
        return "what is printed does not parse: " + error + printed
    return None if again == run(tool, text, "--mlir-print-op-generic")[0] else "what is printed parses to other IR:\n" + printed


def main():
    tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    files = sorted(folder.rglob("*.mlir"))
    errors = [(path, check(tool, path.read_text())) for path in files]
    failed = [f"{path.relative_to(folder)}: {error}" for path, error in errors if error]
    print("\n".join(failed) or f"{len(files)} files")
    sys.exit(bool(failed or not files))


if __name__ == "__main__":
    main()

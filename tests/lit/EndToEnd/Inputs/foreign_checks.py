"""Helpers of check_import.py, check_training.py, check_containers.py and check_ctranslate2.py: they read the arguments XFC WORK_FOLDER, run commands, and collect failures."""
import os
import subprocess
import sys

xfc, work = sys.argv[1:]
failures = []


def path(*names):
    return os.path.join(work, *names)


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{command}: exit status {result.returncode}\n{result.stderr}")
    return result


def expect(holds, what):
    if not holds:
        failures.append(what)

"""only_version.py PROGRAM FOLDER: puts a program into the folder that prints what PROGRAM says of its version, and otherwise fails, if PROGRAM
is there. Plain Python."""
import pathlib
import shutil
import sys

program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
if found := shutil.which(program):
    script = folder / program
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {found} --version\nexit 3\n')
    script.chmod(0o755)

"""The commands that compile each source file, also where the build compiles several together (XFC_UNITY)."""
import json
import pathlib
import re


def entries(build):
    """Entries of BUILD/compile_commands.json, with one for each file that a generated file includes in place of that one's."""
    found = []
    for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text(encoding="utf-8")):
        file = pathlib.Path(entry["file"])
        together = [str(file)]
        if file.parent.name == "Unity":
            together = re.findall(r'^#include "(.+)"', file.read_text(encoding="utf-8"), re.M)
        found += [{**entry, "file": name, "command": entry["command"].replace(str(file), name)} for name in together]
    return found

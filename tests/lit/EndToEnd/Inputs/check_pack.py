"""check_pack.py PACK SOURCES...: the modules of the folders SOURCES that a script in PACK imports are in PACK, too. Plain Python."""
import ast
import glob
import os
import sys

pack, *sources = sys.argv[1:]
packed = {os.path.basename(path) for path in glob.glob(f"{pack}/*.py")}
for path in sorted(glob.glob(f"{pack}/*.py")):
    with open(path) as file:
        tree = ast.parse(file.read())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for name in sorted(f"{name}.py" for name in names):
        if name not in packed and any(os.path.exists(os.path.join(folder, name)) for folder in sources):
            sys.exit(f"{path} imports {name}, which is not packed")
print(f"{len(packed)} scripts import only one another")

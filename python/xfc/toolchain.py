"""The xfc of this package, and the libraries that it makes of models."""
import atexit
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings
from typing import NoReturn, Optional

from .library import Error


OWN = pathlib.Path(__file__).resolve().parent / "bin" / "xfc"


def compiler() -> str:
    """The path of xfc: the one in this package, or else the first on PATH. Raises Error if there is none."""
    found: Optional[str] = str(OWN) if OWN.exists() else shutil.which("xfc")
    if not found:
        raise Error(1, f"xfc was found neither in {OWN.parent} nor on PATH; install the wheel of xfc, or give library=, which "
                       "`xfc compile MODEL --emit lib -o NAME` makes")
    return found


def _identity(model: str) -> bytes:
    """What decides which code a model needs: its description, or what its weights say of it."""
    folder = pathlib.Path(model)
    for name in ("model.json", "best.safetensors", "last.safetensors", "model.safetensors"):
        file = folder / name
        try:
            if name == "model.json":
                return file.read_bytes()
            with open(file, "rb") as stream:
                header = stream.read(min(int.from_bytes(stream.read(8), "little"), 1 << 28))
            return str(json.loads(header).get("__metadata__", {}).get("model_hash", "")).encode()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (ValueError, AttributeError):
            raise Error(1, f"{file}: is no safetensors file") from None
        except OSError as error:
            raise Error(1, f"{file}: cannot read: {error.strerror}") from None
    raise Error(1, f"{model}: holds neither model.json nor weights; expected the --out folder of `translator train`, or a folder of `xfc import`; "
                   "for another file, such as a packed executable, give library=, which `xfc compile MODEL --emit lib -o NAME` makes")


def _processor() -> bytes:
    try:
        with open("/proc/cpuinfo", "rb") as info:
            return b"".join(sorted({line for line in info if line.startswith((b"model name", b"flags"))}))
    except OSError:
        return b""


def library_of(model: str) -> str:
    """The library of a folder's model for this machine's processor, compiled at the first call."""
    model = os.fspath(model)
    identity, xfc = _identity(model), compiler()
    made = os.stat(xfc)
    key = hashlib.sha256(b"\0".join([identity, _processor(), f"{made.st_size} {made.st_mtime_ns}".encode()])).hexdigest()[:32]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")) / "xfc"
    library = cache / f"{key}.so"
    if library.exists():
        return str(library)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=cache, prefix="compile-")
    except OSError as error:
        warnings.warn(f"{cache}: cannot write there ({error.strerror}), so the model is compiled anew in each process; set XDG_CACHE_HOME to a "
                      "folder that can be written to", stacklevel=3)
        folder = tempfile.mkdtemp(prefix="xfc-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _compile(xfc, model, folder)
    try:
        os.replace(_compile(xfc, model, folder), library)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return str(library)


def _compile(xfc: str, model: str, folder: str) -> str:
    """Compiles the model's library into the folder, and returns its path."""
    output = os.path.join(folder, "model")
    try:
        done = subprocess.run([xfc, "compile", model, "--emit", "lib", "-o", output], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Error(1, f"{xfc}: cannot start: {error.strerror}") from None
    if done.returncode:
        raise Error(1, done.stderr.strip() or f"{xfc} ended with status {done.returncode}")
    return os.path.join(folder, "libmodel.so")


def main() -> NoReturn:
    """The command `xfc`."""
    try:
        os.execv(OWN, ["xfc", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"error: {OWN}: cannot start: {error.strerror}; install the wheel of xfc again, on x86-64 Linux")

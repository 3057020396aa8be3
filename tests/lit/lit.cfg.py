# The lit suite: IR tests, import errors, and end-to-end runs of compiled executables.
import glob
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from measured import MeasuredTest, unchanged

config.name = "xfc"
config.suffixes = [".mlir", ".test", ".json"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
# tests/sanitizers passes another folder for the tests' output, may pass one with other tools, and says what is instrumented.
config.test_exec_root = lit_config.params.get("output", os.path.join(config.xfc_binary_dir, "tests", "lit"))

tools = lit_config.params.get("tools", os.path.join(config.xfc_binary_dir, "bin"))
config.environment["PATH"] = os.pathsep.join([config.llvm_tools_dir, os.environ["PATH"]])
python = os.environ.get("XFC_TEST_PYTHON", config.python)

if "sanitized" in lit_config.params:
    config.available_features.add("sanitized")
    config.environment["XFC_SANITIZED"] = "1"

# Tests compile many models that share kernels. The cache stays from run to run, and from one build of the compiler to the next:
# it holds what the same code generator made of the same kernels, and the compiler keeps it small.
config.environment["XFC_CACHE"] = os.path.join(config.test_exec_root, "cache")

# Longer names come first, since substitutions apply in order. A pass that hangs fails its test, and so does IR that bytecode does not preserve.
config.substitutions += [
    ("%xfc-opt", "timeout 60 " + os.path.join(tools, "xfc-opt") + " --verify-roundtrip"),
    ("%xfc-interpret", "timeout 60 " + os.path.join(tools, "xfc-interpret")),
    ("%xfc-models", os.path.join(tools, "xfc-models")),
    ("%xfc-ptx", "timeout 60 " + os.path.join(tools, "xfc-ptx")),
    ("%xfc", os.path.join(tools, "xfc")),
    ("%build", config.xfc_binary_dir),
    ("%models", os.path.join(config.xfc_source_dir, "models")),
    ("%examples", os.path.join(config.xfc_source_dir, "docs", "examples")),
    ("%gpu", os.path.join(config.xfc_source_dir, "tests", "gpu")),
    ("%python3", python),
    ("%python", python),
]


# The costliest tests take turns with those that build what is instrumented (turn 0) and what another compiler builds (turn 1): REQUIRES: turn-1 or turn-2.
for turn in range(3):
    if subprocess.run([os.path.join(config.xfc_source_dir, "tests", "turn.sh"), f"{turn}/3", "true"], capture_output=True).returncode == 0:
        config.available_features.add(f"turn-{turn}")


def imports(module):
    return subprocess.run([python, "-c", "import " + module], capture_output=True).returncode == 0


# Packages that the Python references need besides the standard library.
if imports("torch") and imports("numpy") and imports("safetensors"):
    config.available_features.add("torch")
if imports("transformers") and imports("sentencepiece"):
    config.available_features.add("transformers")
if imports("ctranslate2") and imports("sentencepiece") and imports("safetensors"):
    config.available_features.add("ctranslate2")
if imports("sacrebleu"):
    config.available_features.add("sacrebleu")

# Executables with code for AMX run on any CPU with what else they need; a preloaded library emulates the tiles (tests/emulation).
with open("/proc/cpuinfo") as info:
    features = next((line.split() for line in info if line.startswith("flags")), [])
if {"avx512_bf16", "avx512_vnni"} <= set(features):
    config.available_features.add("tiles")
config.substitutions.append(("%tiles", "env LD_PRELOAD=" + os.path.join(config.xfc_binary_dir, "tests", "libtiles.so")))

# MPI launchers of Debian's packages openmpi-bin and mpich, if this machine lets them start processes.
launchers = {name: shutil.which("mpiexec." + name) for name in ("openmpi", "mpich")}


def launches(launcher):
    allowed = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    try:
        return subprocess.run([launcher, "-n", "2", "true"], capture_output=True, env=allowed, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


if all(launchers.values()) and all(map(launches, launchers.values())):
    config.available_features.add("mpi")
    config.substitutions += [("%" + name, launcher) for name, launcher in launchers.items()]
elif os.environ.get("XFC_REQUIRE_MPI"):
    lit_config.fatal("XFC_REQUIRE_MPI is set, but mpiexec.openmpi and mpiexec.mpich do not both start processes here: install openmpi-bin and mpich")

# A launcher and a library of MPI 5's standard ABI, as the Python package mpich has them.
prefix = os.path.dirname(os.path.dirname(python))
if glob.glob(os.path.join(prefix, "lib", "libmpi_abi.so.*")) and launches(os.path.join(prefix, "bin", "mpiexec")):
    config.available_features.add("mpi-abi")
config.substitutions.append(("%abi", prefix))

# A browser without a window, for the page of `serve`, if one starts here: Debian's packages chromium-headless-shell and chromium have one.
for browser in filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))):
    try:
        shown = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom", "about:blank"],
                               capture_output=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        continue
    if b"<html>" in shown:
        config.available_features.add("chromium")
        config.substitutions.append(("%chromium", browser))
        break

# NVIDIA's assembler and disassembler, from a CUDA toolkit or from the Python packages nvidia-cuda-nvcc and triton.
packages = os.path.join(prefix, "lib/python*/site-packages/")
for folder in [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")] + glob.glob(packages + "nvidia/*/bin") + glob.glob(
        packages + "triton/backends/nvidia/bin"):
    config.environment["PATH"] += os.pathsep + folder
if shutil.which("ptxas", path=config.environment["PATH"]):
    config.available_features.add("ptxas")
    if shutil.which("nvdisasm", path=config.environment["PATH"]):
        config.available_features.add("nvdisasm")

# What tests depend on besides themselves: what is built, what they call, and what they call it with. Those that mention the documentation
# read it, too. What is instrumented is linked from elsewhere (tests/sanitizers/run.sh), so those tests always run.
source = lambda *names: [os.path.join(config.xfc_source_dir, *name.split("/")) for name in names]
built = [tools, os.path.join(config.xfc_binary_dir, "tests", "libtiles.so"), *glob.glob(os.path.join(config.xfc_binary_dir, "tests", "ptx", "lib*"))]
called = [os.path.join(config.llvm_tools_dir, "FileCheck"), *filter(None, launchers.values())]
records = os.path.join(config.test_exec_root, "passed")
config.test_format = MeasuredTest(
    inputs=unchanged.sum_of(
        unchanged.sum_of_paths(built + called, os.path.join(records, "sums")),
        unchanged.sum_of_paths(source("models", "python", "tests/bench", "tests/faults", "tests/fuzz/corpus", "tests/gpu", "tests/promises")),
        unchanged.sum_of_paths(glob.glob(os.path.join(config.test_source_root, "*", "Inputs")) + glob.glob(os.path.join(config.test_source_root, "*.py"))),
        config.substitutions, sorted(os.path.basename(name) for name in glob.glob(packages + "*.dist-info"))),
    documentation=unchanged.sum_of_paths(source("docs", "README.md", "compiler/README.md", "compiler/Dialect/XFCOps.td")),
    records=None if "sanitized" in lit_config.params else records)

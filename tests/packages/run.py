"""Makes the packages and installs each where there is nothing but a base system: there it compiles, trains and translates.

usage: run.py BUILD      (exit status 77: this machine cannot make such a root, and why is said)

The Debian package and the tarball go into a root that holds what Debian 12 calls essential, copied from this machine: no compiler, no
linker, no headers and no network. The wheel goes into a fresh virtual environment.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import zipfile

SOURCES = pathlib.Path(__file__).resolve().parent.parent.parent
TRAINED = "--set d_model=24 --set d_ff=40"
# What a person does with a new installation. The words in braces are where xfc is, and where the files are.
FIRST_STEPS = """set -eu
cd {work}
export XFC_CACHE={cache}
for tool in cc gcc g++ clang ld ld.lld ld.bfd ld.gold as; do ! command -v $tool || {{ echo "$tool is there"; exit 1; }}; done
{xfc} models | grep -q '^tiny .*start here'
{xfc} vocab --input text.source text.target --size 60 -o spm.model
{xfc} compile tiny --vocab spm.model {trained} -o translator
./translator train --source text.source --target text.target --vocab spm.model --out run --steps 12 --batch-tokens 512 --warmup 4 --quiet
head -n 3 text.source | ./translator translate --model run --beam 2 > translations
test "$(wc -l < translations)" = 3
! {xfc} compile tini 2> message
grep -q "did you mean 'tiny'" message
"""


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def fails(part, *command, **more):
    """Runs a command that must fail with one line that has this in it."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)
    lines = [line for line in done.stderr.splitlines() if "notice" not in line]
    assert done.returncode and len(lines) == 1 and part in lines[0], (command, done.returncode, done.stderr)


def essential_packages():
    """The installed packages that Debian calls essential, and all that they depend on."""
    asked = subprocess.run(["dpkg-query", "-W", "-f=${Package}\t${Essential}\t${Pre-Depends}, ${Depends}\t${Provides}\n"], capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in asked.stdout.splitlines()]
    depends = {name: needs for name, _, needs, _ in rows}
    providers = {re.split(r"[ (]", virtual.strip())[0]: name for name, _, _, provides in rows for virtual in provides.split(",") if virtual.strip()}
    found, waiting = set(), [name for name, essential, *_ in rows if essential == "yes"] + ["libc-bin"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for choice in filter(str.strip, depends[name].split(",")):
            names = [re.split(r"[ (:]", one.strip())[0] for one in choice.split("|")]
            known = [one if one in depends else providers.get(one) for one in names]
            waiting += [one for one in known if one][:1]
    return sorted(found)


def make_root(root):
    """Copies the files of these packages, and a list of packages that says so."""
    packages = essential_packages()
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "dev", "tmp", "root", "work", "cache", "var/lib/dpkg/info", "var/lib/dpkg/updates",
                   "etc/alternatives", "opt"):
        (root / folder).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to("usr/" + name)
    files = set()
    info = pathlib.Path("/var/lib/dpkg/info")
    for package in packages:
        for listed in [*info.glob(package + ".list"), *info.glob(package + ":*.list")]:
            shutil.copy(listed, root / "var/lib/dpkg/info")
            files |= {line for line in listed.read_text().splitlines() if not line.startswith(("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/"))}
    files = sorted(file for file in files if os.path.lexists(file) and (os.path.islink(file) or not os.path.isdir(file)))
    copied = subprocess.Popen(["tar", "-C", "/", "-cf", "-", "--no-recursion", "-T", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    into = subprocess.Popen(["tar", "-C", root, "-xf", "-", "--keep-directory-symlink"], stdin=copied.stdout)
    copied.stdin.write("".join(file[1:] + "\n" for file in files).encode())
    copied.stdin.close()
    if copied.wait() or into.wait():
        sys.exit("the files of a base system could not be copied")
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/nonexistent:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    if not (root / "bin/sh").exists():
        (root / "bin/sh").symlink_to("dash")
    entries = pathlib.Path("/var/lib/dpkg/status").read_text().split("\n\n")
    kept = [entry for entry in entries if re.match(r"Package: (.*)", entry) and re.match(r"Package: (.*)", entry)[1] in packages]
    (root / "var/lib/dpkg/status").write_text("\n\n".join(kept) + "\n")
    for file in ("available", "diversions", "statoverride"):
        (root / "var/lib/dpkg" / file).touch()


def inside(root, *command):
    """The words that run a command in the root, without a network and with a /proc of its own."""
    script = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && mount --bind "$1" "$0/cache" && shift && exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"'
    return ["unshare", "--mount", "--pid", "--fork", "--net", "sh", "-c", script, str(root), str(CACHE), *command]


def check_root(root, wheel_of):
    work = root / "work"

    def first_steps(xfc, *prefix):
        for file in [*work.iterdir()]:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        for name in ("text.source", "text.target"):
            shutil.copy(TEXT / name, work)
        for file in (work, *work.iterdir()):
            os.chown(file, 1000, 1000)
        script = FIRST_STEPS.format(work="/work", cache="/cache", xfc=xfc, trained=TRAINED)
        run(*inside(root, *prefix, "sh", "-c", script))
        return (work / "translations").read_bytes(), (work / "translator").read_bytes()

    shutil.copy(wheel_of("xfc_*.deb"), root / "tmp/xfc.deb")
    run(*inside(root, "/usr/bin/dpkg", "-i", "/tmp/xfc.deb"))
    from_deb = first_steps("xfc")
    for file in ("share/man/man1/xfc.1.gz", "share/bash-completion/completions/xfc", "share/zsh/vendor-completions/_xfc", "share/fish/vendor_completions.d/xfc.fish",
                 "share/xfc/models/schema.json", "share/doc/xfc/copyright"):
        assert (root / "usr" / file).stat().st_size > 0, file
    run(*inside(root, "/usr/bin/dpkg", "-r", "xfc"))
    assert not (root / "usr/bin/xfc").exists() and not (root / "usr/lib/xfc").exists(), "dpkg -r leaves files"
    print("the Debian package compiles, trains and translates")

    # By a user whose home does not exist, in a folder that cannot be written to.
    run("tar", "-C", root / "opt", "-xJf", wheel_of("xfc-*.tar.xz"))
    folder = next((root / "opt").iterdir())
    as_user = ("/usr/bin/setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
    assert first_steps(f"/opt/{folder.name}/bin/xfc", *as_user) == from_deb, "the tarball makes what the Debian package makes"
    print("the tarball compiles, trains and translates")

    # A system with another C library, or an older one, can compile; what it makes says before it is run where it can be.
    bare = root / "bare"
    shutil.copytree(folder, bare / "xfc")
    for name in ("tmp", "dev", "proc", "cache"):
        (bare / name).mkdir()
    shutil.copy(TEXT / "spm.model" if (TEXT / "spm.model").exists() else work / "spm.model", bare / "spm.model")
    for libc, found in ((None, "has none"), (b"GLIBC_2.2.5\0GLIBC_2.31\0GLIBC_PRIVATE", "has glibc 2.31")):
        if libc:
            (bare / "lib64").mkdir()
            (bare / "lib64/libc.so.6").write_bytes(libc)
        said = run("unshare", "--mount", "--pid", "--fork", "--net", "sh", "-c", 'mount -t proc proc "$0/proc" && mount --bind "$1" "$0/cache" && exec chroot "$0" /xfc/bin/xfc compile '
                   f"tiny --vocab /spm.model {TRAINED} --cache /cache -o /translator", bare, CACHE)
        assert re.search(rf"warning: /translator needs glibc 2\.\d+, and this machine {found}: use it on Debian 12", said), said
    assert (bare / "translator").read_bytes() == from_deb[1]
    print("a system without glibc, or with an older one, is told so")


def check_wheel(wheel, folder):
    begin = time.monotonic()
    venv, home = folder / "venv", folder / "home"
    for old in (venv, home):
        shutil.rmtree(old, ignore_errors=True)
    home.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", wheel)
    environment = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(home), "XFC_CACHE": str(CACHE), "PYTHONDONTWRITEBYTECODE": "1"}
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(TEXT, work)
    steps = "\n".join(line for line in FIRST_STEPS.splitlines() if not line.startswith("for tool"))
    run("sh", "-c", steps.format(work=work, cache=CACHE, xfc="xfc", trained=TRAINED), env=environment)
    seconds = time.monotonic() - begin
    print(f"from the wheel to a translation of a model that was trained there: {seconds:.0f} s")
    assert seconds < 120, "that takes more than two minutes"
    print(run(python, pathlib.Path(__file__).with_name("check_module.py"), work, env=environment), end="")
    pip = (sys.executable, "-m", "pip", "install", "--no-index", "--only-binary=:all:", "--target", folder / "nowhere")
    fails("is not a supported wheel on this platform", *pip, "--platform", "manylinux_2_31_x86_64", wheel)
    assert "Requires-Python: >=3.8\n" in zipfile.ZipFile(wheel).read(next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))).decode()
    print("the wheel compiles, trains and translates, also as a module")


def main():
    global CACHE, TEXT
    build = pathlib.Path(sys.argv[1]).resolve()
    if not list(pathlib.Path(build, "package").parent.glob("CMakeCache.txt")):
        sys.exit(f"{build} is no build folder")
    if "xfc-static" not in run("cmake", "--build", build, "--target", "help"):
        skip("liblldELF.a is not installed (Debian: liblld-22-dev), which packages contain")
    folder = build / "tests/packages"
    CACHE, TEXT, out = folder / "cache", folder / "text", folder / "out"
    for needed in (CACHE, TEXT):
        needed.mkdir(parents=True, exist_ok=True)
    os.chmod(CACHE, 0o777)
    print(run(SOURCES / ".ci/package.sh", out, "--build", build, cwd=SOURCES), end="")

    def package(pattern):
        found = list(out.glob(pattern))
        assert len(found) == 1, (pattern, found)
        return found[0]

    for pattern in ("xfc_*.deb", "xfc-*.tar.xz", "xfc-*.whl"):
        assert package(pattern).stat().st_size < 60e6, f"{pattern} is larger than 60 MB"
    installed = sum(path.stat().st_size for path in (build / "package/root").rglob("*") if path.is_file())
    assert installed < 150e6, f"{installed} bytes are installed"
    print(f"installed: {installed / 1e6:.1f} MB")

    pairs = run(sys.executable, SOURCES / "tests/lit/EndToEnd/Inputs/make_text.py", "1", "300").splitlines()
    for side, name in enumerate(("text.source", "text.target")):
        (TEXT / name).write_text("".join(pair.split("\t")[side] + "\n" for pair in pairs))
    check_wheel(package("xfc-*.whl"), folder)

    if not shutil.which("dpkg-query") or not pathlib.Path("/var/lib/dpkg/status").exists() or "VERSION_ID=\"12\"" not in pathlib.Path("/etc/os-release").read_text():
        skip("the wheel is right; for the others, a root is copied from Debian 12, which this machine does not run")
    if os.geteuid() or subprocess.run(["unshare", "--mount", "--pid", "--fork", "--net", "true"], stderr=subprocess.DEVNULL).returncode:
        skip("the wheel is right; for the others, a root is entered, which this user may not (unshare, chroot)")
    make_root(folder / "root")
    check_root(folder / "root", package)
    shutil.rmtree(folder / "root")


if __name__ == "__main__":
    main()

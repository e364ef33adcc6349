"""Builds the wheel and the source distribution, as PEP 517 asks: `pip install .`, `pip wheel .`, `python -m build`.

The wheel is what CMake installs, in the package's folder `installed`, with the modules that load it. No part of it is
compiled against a Python, so one wheel is for all of them. The standard library is all that this needs.

    --config-settings build-dir=FOLDER    takes what a build in FOLDER has made already; else the tree is built
"""
import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
COMPONENTS = ("dlaunch", "dlaunchd", "libdlaunch0", "libdlaunch-dev", "libdlaunch-nccl", "libdlaunch-pmix")
PROGRAMS = ("dlaunch", "dlaunchd")
NAME = "dlaunch"
VERSION = re.search(r"project\(dlaunch VERSION ([0-9.]+)", (TREE / "CMakeLists.txt").read_text()).group(1)
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: A launcher, a rendezvous and collectives for programs of many processes
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""
# Up to which version of their symbols systems with glibc 2.N have the compiler's libraries, as PEP 600 counts.
COMPILERS_LIBRARIES = {
    "GLIBCXX_3.4.": ((19, 17), (22, 24), (24, 27), (28, 31), (29, 34), (30, 35), (33, 39)),
    "CXXABI_1.3.": ((7, 17), (10, 24), (11, 27), (12, 31), (13, 34), (15, 39)),
    "GCC_": ((4, 17), (7, 27), (12, 35), (14, 39)),
}
ENTRY_POINTS = "[pytest11]\ndlaunch = dlaunch.jobs.pytest_plugin\n"


# What PEP 517 calls.

def get_requires_for_build_wheel(config_settings=None):
    """From the index only what the system lacks."""
    if built_in(config_settings):
        return []
    return [need for need in ("cmake>=3.22", "ninja") if not works(re.match(r"\w+", need).group())]


def get_requires_for_build_sdist(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / f"{NAME}-{VERSION}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(metadata())
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory(prefix="dlaunch-wheel-") as temporary:
        installed, papers = pathlib.Path(temporary) / "installed", pathlib.Path(temporary) / "papers"
        build = built_in(config_settings) or built_here(pathlib.Path(temporary) / "build")
        install(build, installed)
        write_papers(build, papers)
        tag = f"py3-none-{platform_of(binaries_of(installed))}"
        wheel = Wheel(pathlib.Path(wheel_directory) / f"{NAME}-{VERSION}-{tag}.whl")
        for source in sorted((HERE / "dlaunch").rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                wheel.add(str(source.relative_to(HERE)), source.read_bytes())
        for source in sorted(path for path in installed.rglob("*") if path.is_file()):
            name = source.relative_to(installed)
            wheel.add(f"dlaunch/installed/{name}", source.read_bytes(), executable=name.parts[0] == "bin")
        for program in PROGRAMS:
            wheel.add(f"{NAME}-{VERSION}.data/scripts/{program}", (HERE / "launcher").read_bytes(), executable=True)
        for source in sorted(path for path in papers.rglob("*") if path.is_file()):
            wheel.add(f"{NAME}-{VERSION}.dist-info/{source.relative_to(papers)}", source.read_bytes())
        return wheel.finish(tag, metadata(), ENTRY_POINTS)


def build_sdist(sdist_directory, config_settings=None):
    name = f"{NAME}-{VERSION}"
    path = pathlib.Path(sdist_directory) / f"{name}.tar.gz"
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=date()) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        def add(file, data, mode=0o644):
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mode, entry.mtime = len(data), mode, date()
            archive.addfile(entry, io.BytesIO(data))

        for file in tree_files():
            source = TREE / file
            add(file, source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
        add("PKG-INFO", metadata().encode())
    return path.name


# How.

def built_in(config_settings):
    folder = (config_settings or {}).get("build-dir")
    if folder is None:
        return None
    folder = pathlib.Path(folder).resolve()
    if not (folder / "cmake_install.cmake").is_file():
        sys.exit(f"dlaunch: build-dir={folder} is no folder in which CMake has built this tree")
    return folder


def works(program):
    """A script in PATH may be of another Python's, and not work in this one's build."""
    found = shutil.which(program)
    return found is not None and subprocess.run([found, "--version"], capture_output=True).returncode == 0


def cmake_of(build):
    """The one that made it."""
    return re.search(r"^CMAKE_COMMAND:INTERNAL=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE).group(1)


def built_here(build):
    configured(build)
    subprocess.run(["cmake", "--build", build], check=True)
    return build


def configured(build):
    subprocess.run(["cmake", "-S", TREE, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DDLAUNCH_BUILD_TESTS=OFF"], check=True)


def install(build, prefix):
    """What the wheel has of an installation: a wheel has no links, and nobody runs a system's service from it."""
    cmake, whole = cmake_of(build), prefix.with_name("whole")
    for component in COMPONENTS:
        subprocess.run([cmake, "--install", build, "--prefix", whole, "--strip", "--component", component],
                       check=True, stdout=subprocess.DEVNULL)
    shutil.copytree(whole / "bin", prefix / "bin")
    shutil.copytree(whole / "include", prefix / "include")
    (prefix / "lib").mkdir()
    for folder in (whole / "lib", *whole.glob("lib/*-linux-gnu"), whole / "lib64"):
        if not (folder / "pkgconfig").is_dir():
            continue
        for library in folder.glob("lib*.so.*"):
            if library.is_symlink():  # The name by which programs load it.
                shutil.copyfile(library.resolve(), prefix / "lib" / library.name)
        shutil.copytree(folder / "pkgconfig", prefix / "lib" / "pkgconfig")
        shutil.copytree(folder / "cmake", prefix / "lib" / "cmake")
    (soname,) = (path.name for path in (prefix / "lib").glob("libdlaunch.so.*"))
    # Compilers take a text in place of the link: -ldlaunch means the library that programs load.
    (prefix / "lib" / "libdlaunch.so").write_text(f"INPUT({soname})\n")
    for targets in prefix.glob("lib/cmake/dlaunch/dlaunchTargets-*.cmake"):
        targets.write_text(re.sub(r"libdlaunch\.so[.0-9]*", soname, targets.read_text()))


def write_papers(build, folder):
    """The licences of what is compiled in, and the list of it, where this system can tell."""
    (folder / "sboms").mkdir(parents=True)
    done = subprocess.run([sys.executable, TREE / "packaging/make-sbom", "--copyrights", folder / "licenses", build,
                           folder / "sboms" / f"{NAME}.spdx.json"], capture_output=True, text=True)
    if done.returncode != 0:
        shutil.rmtree(folder)
        print(f"dlaunch: the wheel lacks the licences of what is compiled in, so keep it to yourself: "
              f"{done.stderr.strip()}", file=sys.stderr)


def binaries_of(prefix):
    return [file for file in prefix.rglob("*") if file.parent.name in ("bin", "lib") and file.is_file()]


def platform_of(files):
    """The oldest glibc that has every symbol the files ask for, as PEP 600 writes it; auditwheel says the same."""
    machine, versions = os.uname().machine, rb"\0(GLIBC_2\.|GLIBCXX_3\.4\.|CXXABI_1\.3\.|GCC_)(\d+)"
    asked = {least_glibc(kind.decode(), int(number)) for file in files
             for kind, number in re.findall(versions, file.read_bytes())}
    return f"manylinux_2_{max(asked)}_{machine}" if asked and None not in asked else f"linux_{machine}"


def least_glibc(kind, number):
    """Nothing for a version that is newer than the tables."""
    if kind == "GLIBC_2.":
        return number
    return next((glibc for has, glibc in COMPILERS_LIBRARIES[kind] if number <= has), None)


def metadata():
    return METADATA + (TREE / "README.md").read_text()


def date():
    """Of what is packed: the same tree gives the same bytes."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or (TREE / "CHANGELOG.md").stat().st_mtime)


def tree_files():
    if (TREE / ".git").exists():
        if not shutil.which("git"):
            sys.exit("dlaunch: a source distribution of a checkout has the files that git knows: install git, or begin "
                     "with an unpacked source distribution")
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=TREE,
                                check=True, capture_output=True, text=True).stdout
        return sorted(name for name in listed.split("\0") if name and (TREE / name).is_file())
    # A source distribution that was unpacked; nothing else lies in it but what was built since.
    return sorted(str(path.relative_to(TREE)) for path in TREE.rglob("*")
                  if path.is_file() and path.name != "PKG-INFO" and "__pycache__" not in path.parts
                  and not path.relative_to(TREE).parts[0].startswith("build"))


class Wheel:
    """A wheel that is being written; finish() adds what an installer reads."""

    def __init__(self, path, name=NAME):
        self.path = path
        self.name = name
        self.record = []
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.when = max(time.gmtime(date())[:6], (1980, 1, 1, 0, 0, 0))

    def add(self, name, data, executable=False):
        entry = zipfile.ZipInfo(name, self.when)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.archive.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}\n")

    def finish(self, tag, described, entry_points):
        folder = f"{self.name}-{VERSION}.dist-info"
        self.add(f"{folder}/licenses/LICENSE", (TREE / "LICENSE").read_bytes())
        self.add(f"{folder}/METADATA", described.encode())
        self.add(f"{folder}/entry_points.txt", entry_points.encode())
        self.add(f"{folder}/WHEEL", f"Wheel-Version: 1.0\nGenerator: {NAME} {VERSION}\nRoot-Is-Purelib: false\n"
                                    f"Tag: {tag}\n".encode())
        self.record.append(f"{folder}/RECORD,,\n")
        self.archive.writestr(zipfile.ZipInfo(f"{folder}/RECORD", self.when), "".join(self.record))
        self.archive.close()
        return self.path.name

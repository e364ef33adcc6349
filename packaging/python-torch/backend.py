"""Builds the wheel of dlaunch-torch, as PEP 517 asks: `pip install --no-build-isolation packaging/python-torch`.

It has an extension module for each torch that it is built against, of the Python that builds it, and needs a C++20
compiler, that Python's headers and a libdlaunch of this tree's version. Built with --no-build-isolation, that is the
installed package dlaunch, and torch the installed one.

    --config-settings build-dir=FOLDER    headers of this tree, and the libdlaunch that CMake has built in FOLDER
    --config-settings torch=FOLDER:FOLDER    packages of torch (.../site-packages/torch), one for each minor version
"""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent


def _module_at(path):
    spec = importlib.util.spec_from_file_location("dlaunch_wheels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


wheels = _module_at(TREE / "packaging/python/backend.py")
NAME = "dlaunch_torch"
VERSION = wheels.VERSION
METADATA = f"""Metadata-Version: 2.1
Name: dlaunch-torch
Version: {VERSION}
Summary: A backend for torch.distributed by dlaunch's collectives
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Requires-Dist: dlaunch=={VERSION}
Requires-Dist: torch
Classifier: Operating System :: POSIX :: Linux

"""
# torch calls what it finds here when it is imported.
ENTRY_POINTS = "[torch.backends]\ndlaunch = dlaunch_torch_autoload:register\n"


# What PEP 517 calls.

def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory) / f"{NAME}-{VERSION}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings = config_settings or {}
    includes, library = library_of(settings.get("build-dir"))
    with tempfile.TemporaryDirectory(prefix="dlaunch-torch-") as temporary:
        folder = pathlib.Path(temporary)
        modules = [compiled(torch, includes, library, folder) for torch in torches_of(settings.get("torch"))]
        python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
        tag = f"{python}-{python}-{wheels.platform_of(modules)}"
        wheel = wheels.Wheel(pathlib.Path(wheel_directory) / f"{NAME}-{VERSION}-{tag}.whl", NAME)
        for source in sorted((HERE / NAME).glob("*.py*")):  # py.typed is one.
            wheel.add(f"{NAME}/{source.name}", source.read_bytes())
        wheel.add("dlaunch_torch_autoload.py", (HERE / "dlaunch_torch_autoload.py").read_bytes())
        for module in modules:
            wheel.add(f"{NAME}/{module.name}", module.read_bytes(), executable=True)
        return wheel.finish(tag, METADATA, ENTRY_POINTS)


def build_sdist(sdist_directory, config_settings=None):
    sys.exit("dlaunch-torch: its source is a part of dlaunch's; pip wheel packaging/python-torch, in that tree")


# How.

def library_of(build):
    """The folders of headers, and libdlaunch."""
    if build is not None:
        found = sorted((pathlib.Path(build).resolve() / "lib").glob("libdlaunch.so.*"))
        includes = [TREE / "runtime/include", TREE / "collectives/include"]
    else:
        try:
            import dlaunch
        except ImportError:
            sys.exit("dlaunch-torch: install dlaunch first, and build this with --no-build-isolation; or name a build "
                     "of its tree with --config-settings build-dir=FOLDER")
        if dlaunch.__version__ != VERSION:
            sys.exit(f"dlaunch-torch: this is the source of {VERSION}, and dlaunch {dlaunch.__version__} is installed; "
                     "they have to be of one version")
        found = sorted((pathlib.Path(dlaunch.PREFIX) / "lib").glob("libdlaunch.so.*"))
        includes = [pathlib.Path(dlaunch.PREFIX) / "include"]
    if not found:
        sys.exit(f"dlaunch-torch: there is no libdlaunch.so.0 in {build or dlaunch.PREFIX}")
    return includes, found[0]


def torches_of(folders):
    """The packages to build against, by their minor versions."""
    if folders is None:
        spec = importlib.util.find_spec("torch")
        if spec is None:
            sys.exit("dlaunch-torch: there is no torch to build against; build with --no-build-isolation where it is "
                     "installed, or name it with --config-settings torch=FOLDER")
        folders = str(pathlib.Path(spec.origin).parent)
    found = {}
    for folder in map(pathlib.Path, folders.split(":")):
        text = (folder / "version.py").read_text()
        version = re.search(r"__version__ = ['\"](\d+)\.(\d+)", text).groups()
        if not (folder / "include/torch/csrc/distributed/c10d/Backend.hpp").is_file():
            sys.exit(f"dlaunch-torch: the torch in {folder} has no headers of c10d; Debian has them in libtorch-dev and "
                     "pybind11-dev")
        found[version] = folder
    return [found[version] for version in sorted(found, key=lambda v: tuple(map(int, v)))]


def compiled(torch, includes, library, folder):
    """One translation unit: torch's headers take longer than our sources."""
    major, minor = re.search(r"__version__ = ['\"](\d+)\.(\d+)", (torch / "version.py").read_text()).groups()
    name = f"_torch_{major}_{minor}"
    unit = folder / f"{name}.cpp"
    sources = sorted((HERE / "extension").glob("*.cpp"))
    unit.write_text("#include <Python.h>\n" + "".join(f'#include "{source}"\n' for source in sources))
    module = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    command = [*os.environ.get("CXX", "c++").split(), "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
               *os.environ.get("CXXFLAGS", "").split(),
               f'-DDLAUNCH_TORCH_VERSION="{VERSION}"', f"-DDLAUNCH_TORCH_MODULE={name}"]
    command += pybind11_names(torch / "lib/libtorch_python.so")
    command += [f"-I{path}" for path in (TREE, *includes)]
    for path in (torch / "include", torch / "include/torch/csrc/api/include", sysconfig.get_path("include")):
        command += ["-isystem", str(path)]
    # Python, torch and libdlaunch are there when it is loaded, wherever they lie.
    command += [str(unit), "-o", str(module), f"-L{torch / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10",
                "-l:" + library.name, f"-L{library.parent}"]
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True)
    subprocess.run(["strip", "--strip-unneeded", module], check=False)
    return module


def pybind11_names(library):
    """Modules share their types where the names of what built them agree; torch before 2.9 has its compiler's version
    among them, and any is good enough that has its ABI."""
    found = re.search(rb"__pybind11_internals_v\d+(_[a-z]+)(_[a-z]+)(_cxxabi\d+)__", library.read_bytes())
    names = zip(("COMPILER_TYPE", "STDLIB", "BUILD_ABI"), found.groups()) if found else ()
    return [f'-DPYBIND11_{name}="{text.decode()}"' for name, text in names]

"""Cases of python_test about the wheel: what is in it, where it works, and what it refuses."""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import zipfile

from harness import LIMIT, build, clean, environment, launcher, needs, python, run, skip, source


def case_wheel():
    """Installed into a fresh environment, used, and uninstalled without a trace."""
    (wheel,) = (build / "python/wheels").glob("*.whl")
    assert re.fullmatch(r"dlaunch-[0-9.]+-py3-none-manylinux_2_[0-9]+_\w+\.whl", wheel.name), wheel.name
    with tempfile.TemporaryDirectory() as folder:
        fresh = pathlib.Path(folder) / "fresh"
        run("python3", "-m", "venv", fresh)
        before = {path for path in fresh.rglob("*") if "__pycache__" not in path.parts}
        pip = (fresh / "bin/python", "-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "--no-index", "--no-deps", wheel)
        version = run("grep", "-oP", r"project\(dlaunch VERSION \K[0-9.]+", source / "CMakeLists.txt").strip()
        assert version in run(fresh / "bin/dlaunch", "--version")
        assert version in run(fresh / "bin/dlaunchd", "--version")
        assert version in run(fresh / "bin/python", "-m", "dlaunch", "--version")
        script = pathlib.Path(folder) / "script.py"
        script.write_text("import sys, dlaunch\n"
                          "with dlaunch.init() as world:\n"
                          "    world.comm.barrier()\n"
                          "    print(sys.prefix, world.size, dlaunch.__version__)\n")
        # The interpreter is the environment's own, active or not.
        for start in ((fresh / "bin/dlaunch",), (fresh / "bin/python", "-m", "dlaunch")):
            said = run(*start, "--nproc_per_node", 2, script)
            assert said.count(f"{fresh} 2 {version}") == 2, said
        # Exit codes and signals are the program's own, since the script becomes it.
        run(fresh / "bin/dlaunch", "--nproc_per_node", 1, "--no-python", "sh", "-c", "exit 3", code=3)
        child = subprocess.Popen([fresh / "bin/dlaunch", "--no-python", "sh", "-c", "echo up; exec sleep 600"],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean)
        assert b"up" in child.stdout.readline()
        child.terminate()
        assert child.wait(LIMIT) == 128 + 15
        child.stdout.close()
        compiled(fresh, folder)
        run(*pip, "uninstall", "--yes", "dlaunch")
        left = {path for path in fresh.rglob("*") if "__pycache__" not in path.parts} - before
        assert not left, left


def compiled(fresh, folder):
    """A C program against the headers and the library of the wheel."""
    prefix = run(fresh / "bin/python", "-c", "import dlaunch; print(dlaunch.PREFIX)").strip()
    flags = run("pkg-config", "--cflags", "--libs", "dlaunch",
                env={"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}).split()
    run("cc", source / "docs/examples/c_all_reduce.c", *flags, f"-Wl,-rpath,{prefix}/lib", "-o", f"{folder}/program")
    assert "2 ranks, mean 1.5" in run(fresh / "bin/dlaunch", "--nproc_per_node", 2, f"{folder}/program")


def case_manylinux():
    """The wheel is for every system that its name says, though small images have neither SQLite nor a C++ runtime."""
    (wheel,) = (build / "python/wheels").glob("*.whl")
    (installed,) = environment.glob("lib/python3*/site-packages/dlaunch/installed")
    glibc = {"libc.so.6", "libm.so.6"}

    def asked(file):
        dynamic = run("readelf", "-d", installed / file)
        return {name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic) if not name.startswith("ld-linux")}

    assert asked("bin/dlaunch") <= glibc, asked("bin/dlaunch")
    cache = (build / "CMakeCache.txt").read_text()
    of_system = ["libssl.so.3", "libcrypto.so.3", "libpmix.so.2"]
    if not re.search("^DLAUNCH_SQLITE_ARCHIVE:FILEPATH=/", cache, re.MULTILINE):
        of_system.append("libsqlite3.so.0")
    assert asked("bin/dlaunchd") <= {*glibc, *of_system}, asked("bin/dlaunchd")
    needs("auditwheel")
    audit = (python, "-m", "auditwheel")
    path = {"PATH": f"{environment}/bin:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        excluded = (f"--exclude={name}" for name in of_system)
        run(*audit, "repair", *excluded, "--wheel-dir", folder, wheel, env=path)
        repaired = zipfile.ZipFile(pathlib.Path(folder) / wheel.name)
        files = {name for name in repaired.namelist() if not name.endswith("/")}
        assert files == set(zipfile.ZipFile(wheel).namelist()), files
        # The C++ library alone, which asks for a newer C++ runtime than C library.
        make = ("import pathlib, sys; sys.path.insert(0, 'packaging/python'); import backend; "
                "file = pathlib.Path(sys.argv[1]); tag = 'py3-none-' + backend.platform_of([file]); "
                "wheel = backend.Wheel(pathlib.Path(sys.argv[2]) / f'alone-{backend.VERSION}-{tag}.whl', 'alone'); "
                "wheel.add(f'alone/{file.name}', file.read_bytes()); print(wheel.finish(tag, backend.METADATA, ''))")
        alone = run(python, "-c", make, installed / "lib/libdlaunch.so.0", folder, cwd=source).strip()
        said = run(*audit, "show", pathlib.Path(folder) / alone, env=path)
        (tag,) = re.findall(r'platform tag:\s+"(\w+)"', said)
        assert alone.endswith(f"-{tag}.whl"), said


def case_pythons():
    """The same wheel, under each other Python from 3.9 on that is found here."""
    (package,) = environment.glob("lib/python3*/site-packages/dlaunch")
    asks = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    named = (shutil.which(f"python3.{minor}") for minor in range(9, 30))
    pythons = {}
    for path in (*filter(None, named), *map(str, pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3"))):
        done = subprocess.run([path, "-c", asks], capture_output=True, text=True, env=clean)
        if re.fullmatch(r"cpython 3 (9|[1-9]\d+)\s*", done.stdout):  # pyenv's shims may be of no Python.
            pythons[done.stdout.strip()] = path
    if not pythons:
        skip("there is no python3.N in PATH, and none of pyenv's")
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "dlaunch").symlink_to(package)
        program = pathlib.Path(folder) / "program.py"
        program.write_text("import array, dlaunch, sys\nwith dlaunch.init() as world:\n"
                           "    numbers = array.array('d', [world.rank, 1])\n"
                           "    world.comm.all_reduce(numbers)\n"
                           "    got = world.comm.all_gather_object({'rank': world.rank})\n"
                           "    print(sys.version_info[:2], numbers.tolist(), got)\n")
        for version, path in pythons.items():
            env = {"PYTHON_EXEC": path, "PYTHONPATH": folder, "PYTHONWARNINGS": "error"}
            said = run(launcher, "--standalone", "--nproc_per_node", 2, program, env=env)
            told = f"({version.split()[1]}, {version.split()[2]}) [1.0, 2.0] [{{'rank': 0}}, {{'rank': 1}}]"
            assert said.count(told) == 2, f"{path}: {said}"
    print("under", ", ".join(".".join(version.split()[1:]) for version in sorted(pythons)))


def case_sdist():
    """The source distribution has the tree, and the wheel that is made of it is the same, to the byte."""
    with tempfile.TemporaryDirectory() as folder:
        backend = ("-c", "import sys; sys.path.insert(0, 'packaging/python'); import backend; "
                         "getattr(backend, sys.argv[1])(sys.argv[2], {'build-dir': sys.argv[3]})")
        dated = {"SOURCE_DATE_EPOCH": "1000000000"}
        for kind in ("build_sdist", "build_wheel"):
            run(python, *backend, kind, folder, build, cwd=source, env=dated)
        (packed,) = pathlib.Path(folder).glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder)
        (tree,) = (path for path in pathlib.Path(folder).iterdir() if path.is_dir())
        assert (tree / "PKG-INFO").read_text().startswith("Metadata-Version")
        for needed in ("CMakeLists.txt", "pyproject.toml", "launcher/main.cpp", "packaging/python/dlaunch/py.typed"):
            assert (tree / needed).is_file(), needed
        again = pathlib.Path(folder) / "again"
        again.mkdir()
        run(python, *backend, "build_wheel", again, build, cwd=tree, env=dated)
        (first,), (second,) = pathlib.Path(folder).glob("*.whl"), again.glob("*.whl")
        assert first.read_bytes() == second.read_bytes()
        with zipfile.ZipFile(first) as wheel:
            names = wheel.namelist()
        assert not [name for name in names if "__pycache__" in name], names
        assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")], names
        if shutil.which("dpkg"):  # Elsewhere nobody tells of which packages the headers are.
            assert [name for name in names if name.endswith(".dist-info/sboms/dlaunch.spdx.json")], names
            assert [name for name in names if "/licenses/" in name and "fmt" in name], names
        # Without a build elsewhere CMake takes this tree, and finds each source that is named.
        requires = run(python, "-c", "import sys; sys.path.insert(0, 'packaging/python'); import backend, pathlib; "
                                     "backend.configured(pathlib.Path('build-of-sdist')); "
                                     "print('requires', backend.get_requires_for_build_wheel())", cwd=tree)
        assert "requires []" in requires and "Generating done" in requires, requires


def case_whole_sdist():
    """For ./check --all: the wheel that pip makes of the source distribution, and of nothing else, has a job run."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-c", "import sys; sys.path.insert(0, 'packaging/python'); import backend; "
                          "backend.build_sdist(sys.argv[1])", folder, cwd=source)
        (packed,) = pathlib.Path(folder).glob("*.tar.gz")
        run(python, "-m", "pip", "wheel", "--no-index", "--no-deps", "--wheel-dir", folder, packed, limit=3600)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        fresh = pathlib.Path(folder) / "fresh"
        run("python3", "-m", "venv", fresh)
        run(fresh / "bin/python", "-m", "pip", "install", "--no-index", "--no-deps", wheel)
        program = "import dlaunch; world = dlaunch.init(); world.comm.barrier(); print('of', world.size)"
        said = run(fresh / "bin/dlaunch", "--nproc_per_node", 2, "--no-python", fresh / "bin/python", "-c", program)
        assert said.count("of 2") == 2, said


def case_versions():
    """Library and package, program and daemon, launcher and daemon: of two versions, they part with a sentence."""
    declared = run(python, "-c", "import dlaunch._library; print(dlaunch._library.VERSION)").strip()
    version = run("grep", "-oP", r"project\(dlaunch VERSION \K[0-9.]+", source / "CMakeLists.txt").strip()
    assert declared == version, "VERSION of packaging/python/dlaunch/_library.py and CMakeLists.txt have to be the same"
    with tempfile.TemporaryDirectory() as folder:
        for content, words in (
                ('const char* dl_version(void) { return "9.9.9"; }',
                 rf" is of dlaunch 9\.9\.9, and this package of {version}: install both"),
                (f'const char* dl_version(void) {{ return "{version}"; }}', " has no dl_status_text, though it says"),
                ("int other;", " is no library of dlaunch: let DLAUNCH_LIBRARY name")):
            program, library = pathlib.Path(folder) / "library.c", pathlib.Path(folder) / "libdlaunch.so.0"
            program.write_text(content + "\n")
            run("cc", "-shared", "-fPIC", "-o", library, program)
            said = run(python, "-c", "import dlaunch", env={"DLAUNCH_LIBRARY": str(library)}, code=1)
            assert re.search("^ImportError: " + re.escape(str(library)) + words, said, re.MULTILINE), said
    without_lock = "import sys; sys._is_gil_enabled = lambda: False; import dlaunch"
    assert "ImportError: dlaunch needs Python's global lock" in run(python, "-c", without_lock, code=1)
    with socket.create_server(("127.0.0.1", 0)) as newer:
        def answer():
            while True:
                try:
                    one, _ = newer.accept()
                except OSError:
                    return
                with one:
                    if one.recv(8, socket.MSG_WAITALL)[:4] == b"DLCH":
                        one.sendall(b"DLCH" + (99).to_bytes(4, "little"))
                    while one.recv(4096):
                        pass

        threading.Thread(target=answer, daemon=True).start()
        port = newer.getsockname()[1]
        joins = (f"import dlaunch\ntry: dlaunch.init('tcp://127.0.0.1:{port}', rank=1, world_size=2)\n"
                 "except dlaunch.VersionError as error: print('refused:', error)")
        words = "speaks version 99 .*, this side version .*use the same"
        said = run(python, "-c", joins)
        assert re.search(f"^refused: .*{words}", said), said
        said = run(launcher, "--nnodes", 2, "--node-rank", 1, "--rdzv-endpoint", f"127.0.0.1:{port}", "--no-python",
                   "true", code=64)
        assert re.search(words, said), said

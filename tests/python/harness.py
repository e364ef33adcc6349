"""What the cases of python_test share: the environment that is tested, and ways to run programs there."""
import os
import pathlib
import re
import subprocess
import sys

if len(sys.argv) != 4:
    sys.exit("usage: python_test SOURCE BUILD CASE")
source, build = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
here = source / "tests/python"
environment = build / "python/environment"
python = environment / "bin/python"
launcher = environment / "bin/dlaunch"
LIMIT = 120
# A job of ctest's own would be an outer one.
clean = {name: value for name, value in os.environ.items()
         if not re.match(r"(DLAUNCH_|PYTHON|VIRTUAL_ENV$|RANK$|WORLD_SIZE$|MASTER_)", name)}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def needs(module):
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True, env=clean).returncode != 0:
        skip(f"{python} has no {module}, and pip could not have it (see {build}/python/pip.log)")


def run(*command, code=0, limit=LIMIT, **more):
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=limit, env={**clean, **more.pop("env", {})}, stdin=subprocess.DEVNULL, **more)
    assert done.returncode == code, f"{done.returncode} is the exit code of {command}:\n{done.stdout}"
    return done.stdout


def ranks(name, count, *options, code=0, env=None, arguments=()):
    return run(launcher, "--standalone", "--nproc_per_node", count, *options, here / "ranks" / f"{name}.py", *arguments,
               code=code, env=env or {})

"""`python -m dlaunch` is the launcher; programs named *.py run under this Python."""
import os
import sys

from ._library import PREFIX

os.environ.setdefault("PYTHON_EXEC", sys.executable)
os.execv(PREFIX / "bin" / "dlaunch", ["dlaunch", *sys.argv[1:]])

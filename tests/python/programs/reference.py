"""docs/python.md and the package: what the reference's table names is there, what is there the page names, and each
public function says what it does."""
import inspect
import pathlib
import re
import sys

import dlaunch

page = pathlib.Path(sys.argv[1]).read_text()
table = re.search(r"^## Reference\n(.*?)^\*Threads", page, re.DOTALL | re.MULTILINE).group(1)
rows = re.findall(r"^\| (.+?) \| (.*) \|$", table, re.MULTILINE)
assert len(rows) > 10, rows


def words(text):
    """The first name of each `code`, without what it is called with."""
    return [found for code in re.findall(r"`([^`]*)`", text) for found in re.findall(r"^\.?([A-Za-z_]\w*(?:\.\w+)*)", code)]


def public(kind):
    return [name for name in dir(kind) if not name.startswith("_")
            and any(name in base.__dict__ for base in kind.__mro__ if base.__module__.startswith("dlaunch"))]


for head, text in rows:
    owner = getattr(dlaunch, words(head)[0], None) if words(head) else dlaunch.Communicator
    if not inspect.isclass(owner):
        continue
    for name in (name for name in words(text) if not name.endswith("_")):
        at = owner
        for part in name.split("."):
            # An attribute of instances alone is set, or annotated, in the class' source.
            known = any(hasattr(one, part) for one in (at, dlaunch)) or re.search(
                rf"self\.{part}\b|^    {part}\s*:", inspect.getsource(owner), re.MULTILINE)
            assert known, f"the reference has {owner.__name__}'s {name}, and the package has not"
            at = getattr(at, part, getattr(dlaunch, part, None))

named = {part for word in words(page) for part in word.split(".")}
# A collective's second form is named by the row that says so.
named |= {f"start_{name}" for name in named}
lacking = [name for name in dlaunch.__all__ if name not in named]
for kind in (dlaunch.World, dlaunch.Communicator, dlaunch.Work, dlaunch.Store, dlaunch.ReduceOp, dlaunch.Join,
             dlaunch.Transfer, dlaunch.Message, dlaunch.Received, dlaunch.DType):
    for name in public(kind):
        if name not in named:
            lacking.append(f"{kind.__name__}.{name}")
        value = inspect.getattr_static(kind, name)
        if isinstance(value, (property, staticmethod, classmethod)) or inspect.isfunction(value):
            assert inspect.getdoc(getattr(kind, name)), f"{kind.__name__}.{name} has no docstring"
assert not lacking, f"docs/python.md does not name {lacking}"
print("the page has all of the package")

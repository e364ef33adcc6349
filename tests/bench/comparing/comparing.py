#!/usr/bin/env python3
"""What comparing the ranks' calls costs an all_reduce of four bytes between two ranks of a node, in instructions.

    tests/bench/comparing/comparing.py [--calls N]

A copy of the tree is built as it is, and once more with no hash made, published or looked at; callgrind counts rank 0
in both. Told are the instructions of the functions a call passes through that do not wait, so that it does not matter
how long the other rank takes. Needs valgrind; takes some minutes.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[2]

# What a build without has instead.
WITHOUT = {
    "collectives/communicator/state.hpp": [
        ("return (traffic | unsettled) == 0;", "return unsettled == 0;"),
    ],
    "collectives/transport/shm/shm_group.hpp": [
        ("    call_ = hash_of(call);\n", "    static_cast<void>(call);\n"),
        ("    return step << 32 | call;\n", "    static_cast<void>(call);\n    return step;\n"),
        ("static_cast<std::uint32_t>(word >> 32)", "static_cast<std::uint32_t>(word)"),
        ("    return static_cast<std::uint32_t>(word);\n", "    static_cast<void>(word);\n    return 0;\n"),
    ],
}


def run(*command, **options):
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        sys.exit(f"comparing: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def copy_tree(to):
    files = run("git", "-C", TREE, "ls-files", "-z").split("\0")
    for name in filter(None, files):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TREE / name, to / name)


def strip_comparing(tree):
    for name, changes in WITHOUT.items():
        text = (tree / name).read_text()
        for old, new in changes:
            if text.count(old) != 1:
                sys.exit(f"comparing: {name} has {text.count(old)} times, not once: {old!r}")
            text = text.replace(old, new)
        (tree / name).write_text(text)


def build(tree, program):
    run("cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DDLAUNCH_BUILD_TESTS=OFF")
    run("cmake", "--build", tree / "build", "--target", "dlaunch", "dlaunch_program")
    run("c++", "-std=c++20", "-O2", HERE / "all_reduces.cpp", "-o", program, f"-I{tree}/collectives/include",
        f"-I{tree}/runtime/include", f"-L{tree}/build/lib", "-ldlaunch", f"-Wl,-rpath,{tree}/build/lib")


def count(tree, program, calls):
    """Instructions by function, over so many calls."""
    profile = tree / f"profile.{calls}"
    worker = tree / "worker"
    worker.write_text("#!/bin/sh\n"
                      f"[ $RANK = 0 ] || exec {program} {calls}\n"
                      f"exec valgrind --tool=callgrind --callgrind-out-file={profile} {program} {calls}\n")
    worker.chmod(0o755)
    run(tree / "build/bin/dlaunch", "--standalone", "--nproc-per-node", "2", worker, timeout=300)
    table = {}
    for line in run("callgrind_annotate", "--auto=no", "--threshold=100", profile).splitlines():
        found = re.match(r"\s*([\d,]+) (?:\([ \d.]+%\) )?[^:]*:(.*?)(?: \[.*)?$", line)
        if found:
            name = found.group(2)
            table[name] = table.get(name, 0) + int(found.group(1).replace(",", ""))
    return table


def per_call(tree, program, calls):
    few, many = count(tree, program, calls), count(tree, program, 3 * calls)
    path = re.compile(r"::all_reduce\(|shared::|kernels::|StartedQueue::finish_all|Folder|Reducer|folder_for|reducer_for|hash_of")
    each = {name: (total - few.get(name, 0)) / (2 * calls) for name, total in many.items() if path.search(name)}
    return {name: n for name, n in each.items() if n >= 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10000)
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("comparing: valgrind is not there")
    os.environ["CCACHE_NOHASHDIR"] = "1"
    totals = {}
    with tempfile.TemporaryDirectory(prefix="dlaunch-comparing-") as folder:
        for way in ("with", "without"):
            tree = pathlib.Path(folder) / way
            copy_tree(tree)
            if way == "without":
                strip_comparing(tree)
            build(tree, tree / "all_reduces")
            functions = per_call(tree, tree / "all_reduces", arguments.calls)
            totals[way] = sum(functions.values())
            print(f"{way}: {totals[way]:.0f} instructions")
            for name, n in sorted(functions.items(), key=lambda item: -item[1])[:10]:
                print(f"  {n:6.1f}  {name[:90]}")
    more = totals["with"] - totals["without"]
    print(f"comparing: {more:.1f} instructions, {100 * more / totals['with']:.2f} % of {totals['with']:.0f}")


if __name__ == "__main__":
    main()

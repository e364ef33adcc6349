"""Blocks of code in Markdown, and the marks above them.

A block is what stands between ``` lines, or is indented by four blanks behind an empty line. Above
it stands a comment that no reader sees, its mark:

    <!-- run -->                    a session: `$ command` and what it prints, or commands alone; `^C`
                                    ends what runs in its terminal
    <!-- shown in NAME -->          what a terminal of that name prints by now, and further commands
    <!-- file NAME -->              the file NAME of the folder in which the page's sessions run
    <!-- is FILE -->                that file of the tree, word for word; the page's sessions have it
    <!-- compiles -->               C++, C or Python that compiles
    <!-- compiles within ... -->    the same, in the place of a line @ in what follows, which declares
                                    what the block only names
    <!-- run by TEST -->            a test of the tree that reads the page
    <!-- not run: WHY -->          what WHY names of tests/ and docs/, and NAME_test, is there

`run` and `shown` may be followed by these, with commas between:

    in NAME                         in a terminal of its own, which goes on beside the page
    until it says so                commands that are given again while they say something else
    some lines                      lines of ranks of which one has to come, whatever its numbers
    broken lines                    where lines were broken to fit
    dry                             nothing is started: `dlaunch` is `dlaunch --dry-run`, `dlaunchd` is
                                    `dlaunchd --check`, and `srun` only takes its options away
    if COMMAND                      only where this shell command succeeds; the last of them
"""
import dataclasses
import re

MARK = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
MODIFIERS = ("until it says so", "some lines", "broken lines", "dry")


class Wrong(Exception):
    """What is wrong with a page, as a sentence."""


@dataclasses.dataclass
class Mark:
    kind: str                  # "run", "shown", "file", "is", "compiles", "run by", "not run"
    argument: str = ""         # NAME, FILE, what surrounds it, WHY
    terminal: str = ""         # Empty: the page's own.
    modifiers: tuple = ()
    condition: str = ""


@dataclasses.dataclass
class Block:
    line: int                  # In the page, from 1.
    language: str
    lines: list
    mark: Mark

    def text(self):
        return "".join(line + "\n" for line in self.lines)

    def session(self):
        """(command or None, lines that follow it); None: what an earlier command says by now."""
        if not any(line.startswith("$ ") or line == "^C" for line in self.lines):
            if self.mark.kind == "shown":
                return [(None, self.lines)]
            return [(command, None) for command in joined_commands(self.lines)]
        parts = []
        for line in self.lines:
            continued = parts and parts[-1][0] and parts[-1][0].endswith("\\")
            if line.startswith("$ ") or line == "^C":
                parts.append([line.removeprefix("$ "), []])
            elif continued and not parts[-1][1]:
                parts[-1][0] += "\n" + line
            elif parts:
                parts[-1][1].append(line)
            else:
                parts.append([None, [line]])
        return [(command, strip_empty(lines)) for command, lines in parts]


def strip_empty(lines):
    """Without empty lines at the end, which part commands."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def joined_commands(lines):
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def read_mark(text):
    for kind in ("not run:", "run by", "file", "is", "compiles within", "compiles"):
        if text == kind or text.startswith((kind + " ", kind + "\n")):
            return Mark(kind.removesuffix(":").removesuffix(" within"), text[len(kind):].strip())
    kind, *rest = re.split(r"[ ,]+", text, maxsplit=1)
    if kind not in ("run", "shown"):
        raise Wrong(f"nobody knows the mark {text!r}")
    mark = Mark(kind)
    rest = rest[0] if rest else ""
    while rest:
        if rest.startswith("if "):
            mark.condition, rest = rest[3:], ""
            continue
        word, _, rest = (part.strip() for part in rest.partition(","))
        if word.startswith("in "):
            mark.terminal = word[3:]
        elif word in MODIFIERS:
            mark.modifiers += (word,)
        else:
            raise Wrong(f"nobody knows {word!r} in the mark {text!r}")
    return mark


def blocks_of(text):
    """The page's blocks in their order. Raises Wrong where one has no mark, or a mark no block."""
    lines = text.splitlines()
    blocks, mark, at = [], None, 0

    def take(line, language, content):
        if mark is None:
            raise Wrong(f"line {line}: this block has no mark above it; tests/docs/pages.py lists them")
        blocks.append(Block(line, language, content, mark))

    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), None)
            if end is None:
                raise Wrong(f"line {at + 1}: this block does not end")
            take(at + 1, line[3:].strip(), lines[at + 1:end])
            mark, at = None, end + 1
        elif line.startswith("    ") and line.strip() and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            take(at + 1, "", strip_empty([content[4:] for content in lines[at:end]]))
            mark, at = None, end
        elif line.startswith("<!--"):
            end = at
            while "-->" not in lines[end]:
                end += 1
            found = MARK.match("\n".join(lines[at:end + 1]))
            try:
                mark = read_mark(found.group(1))
            except Wrong as wrong:
                raise Wrong(f"line {at + 1}: {wrong}") from None
            at = end + 1
        else:
            if line.strip() and mark is not None:
                raise Wrong(f"line {at + 1}: there is a mark above it, and no block")
            at += 1
    return blocks

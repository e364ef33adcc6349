"""What a page shows against what a program said.

A line `...` stands for lines that were left out, `...` within a line for a part of it. Each rank's
lines come in their order, ranks beside each other as they like. What is different each time, as
process numbers, times and the host's name, stands for any of its kind; a process number that a page
names twice has to be the same one.
"""
import re

DIFFERENT = re.compile(r"""
      (?P<time>\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d\.\d+Z?)
    | (?P<span>\b\d+(?:\.\d+)?[ ](?:us|ms|s|min)\b)
    | (?P<job>\bdlaunch-[0-9a-f]{8}\b)
    | (?P<call>\#\d+)
    | (?P<pid>(?<![\d.:/-])\d{4,7}(?![\d.:]\d))
    | (?P<host>\b(?:vm|debian)\b)
    | (?P<left_out>\.\.\.)
    | (?P<blanks>[ ]{2,})
    """, re.VERBOSE)
ANY = {"time": r"\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d\.\d+Z?", "span": r"\d+(?:\.\d+)? (?:us|ms|s|min)",
       "job": r"dlaunch-[0-9a-f]{8}", "call": r"\#\d+", "host": r"[\w.-]+", "left_out": ".*",
       "blanks": " +"}
# Ports and sizes that look like process numbers.
NUMBERS = {"29400", "29401", "29500", "29501", "1024", "4096"}
RANK = re.compile(r"\[(?:[\w.-]+:)?(\d+)\] ")


class Pattern:
    """One page's lines, as regular expressions. `known`: its process numbers, by those shown."""

    def __init__(self, known):
        self.known = known

    def of_line(self, line, here):
        """`here`: numbers that have been given a group in this expression."""
        pattern, at = "", 0
        for found in DIFFERENT.finditer(line):
            pattern += re.escape(line[at:found.start()])
            at = found.end()
            kind, text = found.lastgroup, found.group()
            if kind != "pid":
                pattern += ANY[kind]
            elif text in NUMBERS:
                pattern += text
            elif text in self.known:
                pattern += self.known[text]
            elif text in here:
                pattern += f"(?P=p{text})"
            else:
                here.add(text)
                pattern += f"(?P<p{text}>\\d+)"
        return pattern + re.escape(line[at:])

    def of_lines(self, lines, broken=False):
        here, pattern = set(), ""
        for line in lines:
            if line.strip() == "...":
                pattern += r"(?:.*\n)*?"
            else:
                pattern += self.of_line(line, here) + (r"\s" if broken else r"\n")
        return pattern

    def matches(self, lines, said, anywhere=False, broken=False):
        """Whether the lines are all that was said, or with `anywhere` a part of it."""
        around = r"(?:.*\n)*?" if anywhere else ""
        after = r"(?:.*\n?)*" if anywhere else ""
        found = re.fullmatch(around + self.of_lines(lines, broken) + after, "".join(
            line + "\n" for line in said))
        if found:
            self.known.update({name[1:]: value for name, value in found.groupdict().items()})
        return found is not None


def by_rank(lines):
    """The lines of each rank, and under None the others; what was left out is left out of each."""
    streams = {None: []}
    for line in lines:
        rank = RANK.match(line)
        streams.setdefault(rank.group(1) if rank else None, [])
    for line in lines:
        rank = RANK.match(line)
        for key, stream in streams.items():
            if line.strip() == "..." or key == (rank.group(1) if rank else None):
                stream.append(line)
    return streams


def skeleton(line):
    return re.sub(r"\d+(\.\d+)?", "0", line).strip()


def some_of(lines, said):
    """Whether one of the ranks' lines came, whatever its numbers and however it goes on."""
    wanted = [skeleton(line).split("...")[0] for line in lines if RANK.match(line)]
    return any(skeleton(line).startswith(start) for line in said for start in wanted)


def agrees(lines, said, known, anywhere=False, broken=False, some=False):
    """Whether `said` is what `lines` show; then `known` has the process numbers, too."""
    trial = dict(known)
    pattern = Pattern(trial)
    shown, heard = by_rank(lines), by_rank(said)
    if some and any(RANK.match(line) for line in lines):
        if not some_of(lines, said):
            return False
        shown, anywhere = {None: shown[None]}, True
    left_out = any(line.strip() == "..." for line in lines)
    if not (left_out or anywhere or set(heard) <= set(shown)):
        return False
    for rank, expected in shown.items():
        if not pattern.matches(expected, heard.get(rank, []), anywhere, broken):
            return False
    known.update(trial)
    return True

#!/usr/bin/env python3
"""Measures the language of Rust source trees and prints it beside four reference projects.

Without arguments it measures this repository. Other trees may be given instead or in addition:

    scripts/naming-figures.py                        this repository and the references
    scripts/naming-figures.py controller/agent p4    two folders of it and the references
    scripts/naming-figures.py --list controller/cli  also which names are one word or not unique

What is measured is the code outside tests: no folder `tests`, `benches`, `examples` or
`test_data`, no file `tests.rs`, `test.rs` or `build.rs`, and no `#[cfg(test)] mod x { ... }`.
The sources are read with regular expressions rather than parsed, so that every tree is measured in
the same way whether or not it builds. `--definitions` explains each figure.
"""

import argparse
import collections
import os
import pathlib
import re
import sys

SKIPPED_FOLDERS = {"target", ".git", "node_modules", "tests", "benches", "examples", "test_data"}
SKIPPED_FILES = {"tests.rs", "test.rs", "build.rs"}

VISIBILITY = r"(?:pub(?:\([^)]*\))?\s+)?"
TYPE = re.compile(
    rf"^(\s*){VISIBILITY}(?:unsafe\s+)?(struct|enum|trait|union|type)\s+([A-Z]\w*)", re.M
)
FUNCTION = re.compile(
    rf"^\s*{VISIBILITY}(?:default\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?"
    r'(?:extern\s+"[^"]*"\s+)?fn\s+(\w+)',
    re.M,
)
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?mod\s+\w+\s*\{")
COMMENT = re.compile(r"^\s*//(?![/!])", re.M)
CLOSURE = re.compile(r"^\s*let (?:mut )?\w+(?:: [^=]+)? = (?:async )?(?:move )?\|", re.M)
SHADOWING = re.compile(r"^\s*let (?:mut )?(\w+)(?:: [^=\n]+)? = [&*]?\1\b", re.M)
TUPLE_PARAMETER = re.compile(r"[(,]\s*\([^()]*,[^()]*\):\s*\(")
PUBLIC_ITEM = re.compile(
    r"^\s*pub\s+(?:(?:const|async|unsafe)\s+)?(?:fn|struct|enum|trait|union|type|const|static)\s"
)
# Text in which braces mean nothing: comments, strings, characters.
OPAQUE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | b?r(\#*)".*?"\1 | b?"(?:\\.|[^"\\])*" | b?'(?:\\[^']*|[^'\\])'""",
    re.S | re.X,
)

FIGURES = {
    "lines": "lines of code, comments and blank lines outside tests",
    "types": "distinct names of structs, enums, traits and unions",
    "one-word types %": "share of those with one capital letter at most",
    "duplicate types %": "share of distinct type names, aliases at the top level included, "
    "that are defined more than once",
    "functions": "definitions of functions and methods, trait implementations included",
    "one-word functions %": "share of those without an underscore",
    "named closures": "closures bound by `let`, per 1,000 lines",
    "shadowing": "`let x = x...`, per 1,000 lines",
    "tuple parameters": "parameters that are destructured tuples, `fn f((a, b): (A, B))`",
    "why-comments": "lines that are a `//` comment, per 1,000 lines; doc comments do not count",
    "function median": "median lines of a function, from its `fn` to its closing brace",
    "function p95": "95th percentile of the same",
    "functions > 60 %": "share of functions longer than 60 lines",
    "function max": "lines of the longest function",
    "file p95": "95th percentile of the lines of a file",
    "files > 500 %": "share of files longer than 500 lines",
    "file max": "lines of the longest file",
    "documented public %": "share of `pub` items (not `pub(crate)`) with a doc comment",
}

# Measured on 2026-11-22 with this script over the default branches of the public repositories:
# https://github.com/BurntSushi/ripgrep at 3fce3b5 (2026-08-04),
# https://github.com/quickwit-oss/quickwit at 9fd0143 (2026-08-21),
# https://github.com/linkerd/linkerd2-proxy at 29637b6 (2026-08-21),
# https://github.com/rust-lang/rust-analyzer at d2e55da (2026-08-21).
# The values are in the order of FIGURES.
REFERENCES = {
    "ripgrep": [
        40102, 338, 27.2, 6.5, 2454, 31.5, 0.4, 1.6, 0, 28.6,
        4, 36, 1.6, 220, 1379, 27.6, 7997, 95.3,
    ],
    "quickwit": [
        226153, 2151, 6.1, 4.7, 9327, 28.9, 0.1, 0.9, 1, 65.5,
        8, 53, 4.0, 2099, 953, 14.2, 12522, 46.2,
    ],
    "linkerd2-proxy": [
        70183, 918, 23.4, 15.9, 3493, 51.5, 0.3, 3.1, 28, 42.2,
        6, 39, 2.2, 542, 442, 2.3, 1261, 27.0,
    ],
    "rust-analyzer": [
        354481, 2503, 16.1, 9.0, 16260, 35.7, 1.2, 2.6, 14, 50.3,
        6, 60, 5.0, 904, 1414, 22.2, 24314, 18.2,
    ],
}


class Tally:
    """What was found in one tree."""

    def __init__(self):
        self.lines = 0
        self.types = collections.Counter()
        self.types_and_aliases = collections.Counter()
        self.functions = collections.Counter()
        self.counts = collections.Counter()
        self.function_lines = []
        self.file_lines = []

    def add_file(self, text):
        lines = text.count("\n")
        self.lines += lines
        self.file_lines.append(lines)
        for indent, kind, name in TYPE.findall(text):
            if kind != "type":
                self.types[name] += 1
            if kind != "type" or not indent:
                self.types_and_aliases[name] += 1
        self.functions.update(FUNCTION.findall(text))
        for name, pattern in [
            ("comments", COMMENT),
            ("closures", CLOSURE),
            ("shadowing", SHADOWING),
            ("tuples", TUPLE_PARAMETER),
        ]:
            self.counts[name] += len(pattern.findall(text))
        self.function_lines.extend(function_lengths(text))
        public, documented = documentation(text.split("\n"))
        self.counts["public"] += public
        self.counts["documented"] += documented

    def one_word_types(self):
        return sorted(name for name in self.types if len(re.findall("[A-Z]", name)) <= 1)

    def duplicate_types(self):
        return {name: n for name, n in self.types_and_aliases.most_common() if n > 1}

    def one_word_functions(self):
        names = self.functions.most_common()
        return {name: n for name, n in names if "_" not in name.strip("_")}

    def figures(self):
        """One value for each of FIGURES, in their order."""

        def per_thousand(name):
            return round(1000 * self.counts[name] / max(self.lines, 1), 1)

        functions = sum(self.functions.values())
        return [
            self.lines,
            len(self.types),
            share(len(self.one_word_types()), len(self.types)),
            share(len(self.duplicate_types()), len(self.types_and_aliases)),
            functions,
            share(sum(self.one_word_functions().values()), functions),
            per_thousand("closures"),
            per_thousand("shadowing"),
            self.counts["tuples"],
            per_thousand("comments"),
            percentile(self.function_lines, 0.5),
            percentile(self.function_lines, 0.95),
            share(sum(n > 60 for n in self.function_lines), len(self.function_lines)),
            max(self.function_lines, default=0),
            percentile(self.file_lines, 0.95),
            share(sum(n > 500 for n in self.file_lines), len(self.file_lines)),
            max(self.file_lines, default=0),
            share(self.counts["documented"], self.counts["public"]),
        ]


def share(part, whole):
    return round(100 * part / whole, 1) if whole else 0.0


def percentile(values, fraction):
    values = sorted(values)
    return values[min(int(fraction * len(values)), len(values) - 1)] if values else 0


def sources(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            if name.endswith(".rs") and name not in SKIPPED_FILES:
                yield pathlib.Path(folder, name)


def without_test_modules(text):
    while found := TEST_MODULE.search(text):
        text = text[: found.start()] + text[closing_brace(text, found.end()) :]
    return text


def closing_brace(text, start):
    """Where the block ends whose opening brace stands before `start`."""
    depth, at = 1, start
    while at < len(text) and depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at


def function_lengths(text):
    """Lines of every function with a body."""
    code = OPAQUE.sub(lambda found: "\n" * found.group().count("\n"), text)
    for found in FUNCTION.finditer(code):
        start = body_start(code, found.end())
        if start is not None:
            first = found.end() - len(found.group().lstrip())
            yield code.count("\n", first, closing_brace(code, start)) + 1


def body_start(code, at):
    """Behind the opening brace of a function's body; None if it has only a signature."""
    depth = 0
    while at < len(code):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(code[at], 0)
        if depth == 0 and code[at] == ";":
            return None
        at += 1
        if depth == 0 and code[at - 1] == "{":
            return at
    return None


def documentation(lines):
    """How many public items there are, and how many of them have a doc comment."""
    public = documented = 0
    for number, line in enumerate(lines):
        if not PUBLIC_ITEM.match(line):
            continue
        public += 1
        above = number - 1
        # Attributes may stand between an item and its documentation, over several lines.
        while above >= 0 and not lines[above].lstrip().startswith("///"):
            if not re.match(r"\s*(#\[|\)\]|\w[\w\s,:=\"()]*,?$)", lines[above]):
                break
            above -= 1
        documented += above >= 0 and lines[above].lstrip().startswith("///")
    return public, documented


def measure(root):
    tally = Tally()
    for path in sources(root):
        tally.add_file(without_test_modules(path.read_text(encoding="utf-8", errors="replace")))
    return tally


def print_table(columns):
    width = max(map(len, FIGURES)) + 2
    print(" " * width + "".join(f"{name[-16:]:>18}" for name in columns))
    for row, name in enumerate(FIGURES):
        print(f"{name:<{width}}" + "".join(f"{values[row]:>18,}" for values in columns.values()))


def print_names(root, tally):
    print(f"\n{root}: one-word types\n  " + " ".join(tally.one_word_types()))
    for title, names in [
        ("types defined more than once", tally.duplicate_types()),
        ("one-word functions", tally.one_word_functions()),
    ]:
        print(f"{root}: {title}\n  " + " ".join(f"{name}:{n}" for name, n in names.items()))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", nargs="*", help="folders to measure instead of this repository")
    parser.add_argument("--list", action="store_true", help="also print the names themselves")
    parser.add_argument("--definitions", action="store_true", help="explain the figures and stop")
    arguments = parser.parse_args()
    if arguments.definitions:
        for name, meaning in FIGURES.items():
            print(f"{name}: {meaning}")
        return
    here = pathlib.Path(__file__).resolve().parent.parent
    trees = arguments.tree or [str(here)]
    for tree in trees:
        if not pathlib.Path(tree).is_dir():
            sys.exit(f"naming-figures: {tree} is not a folder")
    tallies = {tree: measure(tree) for tree in trees}
    columns = {tree.rstrip("/").split("/")[-1]: t.figures() for tree, t in tallies.items()}
    print_table(columns | REFERENCES)
    if arguments.list:
        for tree, tally in tallies.items():
            print_names(tree, tally)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Holds the sources to the architecture. Run by `make test` and `make lint`.

1. A module includes only itself and what its CMake DEPENDS reach, and DEPENDS
   never points up the module list below.
2. Pure modules read no clock, environment, file or socket.
3. Every function that returns a Result is [[nodiscard]] (the class cannot be).
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# Lowest first; ARCHITECTURE.md explains it. Nothing points up.
MODULES = [
    "base", "gpu", "workload", "plan", "planner", "serving", "sim", "control",
    "gate", "device", "kserve", "net", "engine", "server", "client", "measure",
]
PURE = {"gpu", "workload", "plan", "planner", "serving", "sim", "control"}
IMPURE_HEADERS = re.compile(
    r"#include <(fstream|filesystem|thread|ctime|unistd\.h|fcntl\.h|dlfcn\.h|sys/.*|netinet/.*)>")
IMPURE_CALLS = re.compile(
    r"\b(getenv|_clock::now|fopen|time\(nullptr\)|system_clock|steady_clock::now)\b")
DECLARATION = re.compile(
    r"^\s*(?:static\s+|virtual\s+|inline\s+)*Result<.*>\s+\w+\(")


def depends():
    """Module -> what its divvy_module() DEPENDS on."""
    found = {}
    for path in sorted(SRC.glob("*/CMakeLists.txt")):
        text = re.sub(r"#.*", "", path.read_text())
        for name, body in re.findall(r"divvy_module\((\w+)(.*?)\)", text, re.S):
            words = body.split()
            modules = []
            if "DEPENDS" in words:
                for word in words[words.index("DEPENDS") + 1:]:
                    if word == "LINK":
                        break
                    modules.append(word)
            found[name] = modules
    return found


def reach(module, graph, seen=None):
    seen = seen if seen is not None else set()
    for other in graph.get(module, []):
        if other not in seen:
            seen.add(other)
            reach(other, graph, seen)
    return seen


def check_graph(graph):
    for module, others in graph.items():
        if module not in MODULES:
            yield f"src/{module}/CMakeLists.txt: '{module}' is not in the module list"
            continue
        for other in others:
            if other not in MODULES or MODULES.index(other) >= MODULES.index(module):
                yield f"src/{module}/CMakeLists.txt: {module} may not depend on {other}"


def check_file(path, graph):
    name = path.relative_to(ROOT)
    module = path.relative_to(SRC).parts[0]
    allowed = reach(module, graph) | {module}
    is_test = path.stem.endswith(("_test", "_fuzz"))
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        included = re.match(r'#include "([^"/]+)/', line)
        if included and (SRC / included[1]).is_dir() and included[1] not in allowed:
            yield f"{where}: {module} may not include {included[1]}/"
        if module in PURE and not is_test:
            if IMPURE_HEADERS.match(line) or IMPURE_CALLS.search(line.split("//")[0]):
                yield f"{where}: {module} is pure, but: {line.strip()}"
        if path.suffix == ".h" and DECLARATION.match(line):
            yield f"{where}: a function that returns a Result must be [[nodiscard]]"


def main():
    graph = depends()
    problems = list(check_graph(graph))
    files = sorted(p for p in SRC.rglob("*") if p.suffix in (".h", ".cc"))
    for path in files:
        problems += check_file(path, graph)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"check_includes: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

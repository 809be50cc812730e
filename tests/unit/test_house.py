"""The rules of the house that no linter knows; `make check` runs them. The layers are import-linter's."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAKUPUSH = ROOT / "wakupush"
TESTS = ROOT / "tests"
HOUSE = [ROOT / name for name in ("wakupush", "ingest", "workers", "pipeline")]
SERVER, POSTGRES, REDIS, MODEL, RUNTIME = (
    WAKUPUSH / name for name in ("server", "postgres", "redis", "model", "runtime")
)
#: Names that two classes may have, and why: both are a field's standard term, in packages that nobody reads together.
TWICE: dict[str, str] = {}
#: Statements that change rows.
WRITES = re.compile(r"^\s*(INSERT|UPDATE|DELETE|COPY)\b|\(\s*(INSERT|UPDATE|DELETE)\b", re.MULTILINE)
#: Who in the inbox writes, beside claim and write: what stands around the steps.
AROUND = {"isolation.py": {"count_attempt", "touch_attempt", "refund_attempt", "forget_attempts", "quarantine", "add"}}


def modules(folder):
    return sorted(path for path in folder.rglob("*.py") if not {"__pycache__", "node_modules"} & set(path.parts))


def classes(folder):
    for path in modules(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield path, node


def test_the_root_holds_packages_alone():
    assert {path.name for path in WAKUPUSH.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}


def test_no_class_name_is_there_twice():
    found = defaultdict(list)
    for path, node in chain.from_iterable(map(classes, HOUSE)):
        found[node.name].append(str(path.relative_to(ROOT)))
    assert len(found) > 300
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if name not in TWICE} == {}
    assert TWICE.keys() <= twice.keys()


def is_value(node):
    """Say whether a class is a value: a dataclass, an enum, a named or typed dictionary."""
    decorators = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
    bases = {ast.unparse(each) for each in node.bases}
    return "dataclass" in decorators or any(re.search("Enum|NamedTuple|TypedDict", base) for base in bases)


def test_values_live_in_the_model():
    found = [
        f"{path.name}: {node.name}" for folder in (POSTGRES, REDIS) for path, node in classes(folder) if is_value(node)
    ]
    assert found == []
    assert sum(is_value(node) for _, node in classes(MODEL)) > 20  # so that this can fail


def writing_functions():
    """Return the functions of each module in postgres/ that change rows."""
    found = {}
    for path in POSTGRES.glob("[!_]*.py"):
        sql = POSTGRES / "sql" / path.with_suffix(".sql").name
        parts = re.split(r"^-- name: (\w+)\n", sql.read_text(), flags=re.MULTILINE) if sql.exists() else [""]
        queries = {name for name, text in zip(parts[1::2], parts[2::2], strict=True) if WRITES.search(text)}
        bodies = {
            node.name: ast.unparse(node)
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        writes = {
            name
            for name, body in bodies.items()
            if any(f"_SQL['{query}']" in body for query in queries) or "_COPY" in body
        }
        found[path.stem] = writes | {
            name
            for name, body in bodies.items()
            if any(re.search(rf"(?<![\w.]){each}\(", body.partition(":")[2]) for each in writes)
        }
    return found


def test_what_writes_is_told_from_what_reads():
    found = writing_functions()
    assert {"add", "remove", "quarantine"} <= found["ledger"]
    assert "known" not in found["ledger"]
    assert found["requests"] == {"take_on", "admit", "remember_expired"}
    assert found["events"] == {"add"}
    assert {"keep", "forget", "trim"} <= found["message_segments"]
    assert not {"kept", "parts", "lock"} & found["message_segments"]


def test_in_the_inbox_claim_and_write_alone_write():
    writing = writing_functions()
    found = defaultdict(set)
    for path in modules(SERVER / "inbox"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                subject, function = node.value.id, node.attr
                if function in writing.get(subject, ()):
                    found[path.name].add(function)
    assert found.keys() == {"claim.py", "write.py", *AROUND}
    assert {name: found[name] for name in AROUND} == AROUND


def test_no_statement_stands_outside_of_the_files():
    for path in modules(SERVER):
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        assert not [
            text for text in texts if isinstance(text, str) and re.match(r"(SELECT|INSERT|UPDATE|DELETE) ", text)
        ]


def test_ingest_live_loads_no_client_of_postgres():
    told = subprocess.run(
        [sys.executable, "-c", "import sys, ingest.live.process; print(*sys.modules)"],
        cwd=WAKUPUSH.parent,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert "redis" in told
    assert not {"psycopg", "psycopg_pool"} & set(told)

"""The rules of the house that no linter knows; `make check` runs them. The layers are import-linter's."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAKUPUSH = ROOT / "wakupush"
SERVER, POSTGRES = WAKUPUSH / "server", WAKUPUSH / "postgres"
#: Statements that change rows.
WRITES = re.compile(r"^\s*(INSERT|UPDATE|DELETE|COPY)\b|\(\s*(INSERT|UPDATE|DELETE)\b", re.MULTILINE)
#: The modules of the engine and of the kinds that change rows, besides each `store.py`.
WRITERS = {"engine/isolation.py", "engine/outbox.py", "engine/run.py", "registration/loading.py"}


def modules(folder):
    return sorted(path for path in folder.rglob("*.py") if not {"__pycache__", "node_modules"} & set(path.parts))


def test_the_root_holds_packages_alone():
    assert {path.name for path in WAKUPUSH.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}


def writing_functions():
    """Return the functions of each module in postgres/ that change rows."""
    functions = {}
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
        functions[path.stem] = writes | {
            name
            for name, body in bodies.items()
            if any(re.search(rf"(?<![\w.]){each}\(", body.partition(":")[2]) for each in writes)
        }
    return functions


def test_only_claiming_and_storing_change_rows():
    writing = writing_functions()
    writers = set()
    rooms = {path.parent for path in SERVER.glob("*/kind.py")}
    assert SERVER / "engine" in rooms
    for path in (path for room in rooms for path in modules(room)):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if is_call and node.attr in writing.get(node.value.id, ()):
                writers.add(path.relative_to(SERVER).as_posix())
    assert {writer for writer in writers if not writer.endswith("/store.py")} == WRITERS


def test_no_statement_stands_outside_of_the_files():
    for path in modules(SERVER):
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        assert not [
            text for text in texts if isinstance(text, str) and re.match(r"(SELECT|INSERT|UPDATE|DELETE) ", text)
        ]


def test_ingest_live_loads_no_client_of_postgres():
    modules = subprocess.run(
        [sys.executable, "-c", "import sys, wakupush.ingest.live.process; print(*sys.modules)"],
        cwd=WAKUPUSH.parent,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert "redis" in modules
    assert not {"psycopg", "psycopg_pool"} & set(modules)

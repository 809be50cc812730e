"""The documents say what the code says: every table of theirs is made from the code and compared."""

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import SecretStr
from typer.main import get_command

from wakupush.cli import app
from wakupush.model import events, queues, roles
from wakupush.model.deliveries import INITIAL, TRANSITIONS, DeliveryState
from wakupush.model.failures import Failure
from wakupush.runtime import metrics, settings
from wakupush.server.inbox import steps
from wakupush.server.schedule.jobs import JOBS

ROOT = Path(__file__).parents[3]
ARCHITECTURE, CONFIGURATION = ROOT / "docs" / "architecture.md", ROOT / "docs" / "configuration.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])

Row = tuple[str, ...]


def settings_table() -> Iterator[Row]:
    yield "variable", "default", "meaning"
    for name, field in settings.Settings.model_fields.items():
        group = field.annotation
        if inspect.isclass(group) and issubclass(group, settings.Group):
            for inner, each in group.model_fields.items():
                yield _variable(name, inner), _default(each), " ".join((each.description or "").split())
        else:
            yield _variable(name), _default(field), field.description


def failures_table() -> Iterator[Row]:
    yield "failure", "answer", "retry", "token", "route", "may have arrived"
    for each in Failure:
        unknown = "yes" if each.unknown else ""
        yield _code(each.label), each.answer.name, each.retry.value, each.token.value, each.route.value, unknown


def event_kinds_table() -> Iterator[Row]:
    yield "kind", "meaning"
    meanings = _comments(events.EventKind)
    for kind in events.EventKind:
        yield _code(kind), meanings[kind.name]


def event_fields_table() -> Iterator[Row]:
    yield "field", "meaning"
    meanings = _comments(events.Event)
    for name in events.FIELDS:
        yield _code(name), meanings.get(name, "One of the kinds above.")


def metrics_table() -> Iterator[Row]:
    yield "metric", "type", "labels", "meaning"
    for metric in vars(metrics).values():
        if isinstance(metric, metrics.Counter | metrics.Gauge | metrics.Histogram):
            [family] = metric.describe()
            name = family.name + ("_total" if family.type == "counter" else "")
            yield _code(name), family.type, ", ".join(map(_code, metric._labelnames)), family.documentation


def queues_table() -> Iterator[Row]:
    yield "queue and pool", "its tasks"
    tasks = {queue.name: [queue.task] for queue in queues.QUEUES.values()}
    tasks[queues.DISPATCH.name] += [queues.DELIVER, queues.FEEDBACK]
    for name, of_queue in tasks.items():
        yield _code(name), ", ".join(map(_code, of_queue))


def schedule_table() -> Iterator[Row]:
    yield "job", "pause", "what it does"
    for work, seconds in JOBS.items():
        yield _code(work.__name__), f"{seconds:g} s", re.split("[;.]", inspect.getdoc(work))[0] + "."


def roles_table() -> Iterator[Row]:
    yield "role in Postgres", "commands", "table", "reads", "adds", "changes", "deletes"
    for role in roles.Role:
        commands = ", ".join(_code(" ".join(words)) for words, each in roles.ROLE_OF.items() if each is role)
        for table, rights in roles.RIGHTS[role].items():
            yield (
                *(_code(role), commands, _code(table)),
                *(_columns(each) for each in (rights.select, rights.insert, rights.update)),
                "yes" if rights.delete else "",
            )
        if role in roles.OF_THE_CATALOG:
            yield _code(role), commands, _code("wakupush_lake.*"), "all", "all", "all", "yes"
        for function in roles.CALLS.get(role, ()):
            yield _code(role), commands, f"calls {_code(function)}", "", "", "", ""


def _columns(columns: roles.Columns) -> str:
    return "all" if columns == roles.ALL else ", ".join(map(_code, columns))


TABLES = {
    settings_table: CONFIGURATION,
    failures_table: ARCHITECTURE,
    event_kinds_table: ARCHITECTURE,
    event_fields_table: ARCHITECTURE,
    metrics_table: ARCHITECTURE,
    queues_table: ARCHITECTURE,
    schedule_table: ARCHITECTURE,
    roles_table: ARCHITECTURE,
}


def markdown(rows: Iterator[Row]) -> str:
    head, *body = rows
    lines = [head, ("---",) * len(head), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


@pytest.mark.parametrize(("rows", "document"), TABLES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_table_is_that_of_the_code(rows, document):
    table = markdown(rows())
    # The table ends where it ends: a row too many in the document is a difference too.
    if f"\n{table}\n" not in document.read_text() + "\n":
        pytest.fail(
            f"{document.relative_to(ROOT)} must have exactly this table (`make tables` writes it):\n\n{table}",
            pytrace=False,
        )


def test_state_diagram_is_that_of_the_code():
    [section] = re.findall(r"^### Deliveries$(.*?)^## ", ARCHITECTURE.read_text(), re.MULTILINE | re.DOTALL)
    drawn = re.findall(r"^ +(\w+|\[\*\]) --> (\w+|\[\*\])", section, re.MULTILINE)
    legal = {(before.value, after.value) for before, targets in TRANSITIONS.items() for after in targets}
    begins = {("[*]", INITIAL.value)}
    ends = {(state.value, "[*]") for state in DeliveryState if state.is_final}
    assert sorted(drawn) == sorted(legal | begins | ends)


def test_every_state_can_be_reached_and_left_as_it_says():
    assert set(TRANSITIONS) == set(DeliveryState)
    reached = {INITIAL}
    while new := {after for state in reached for after in TRANSITIONS[state]} - reached:
        reached |= new
    assert reached == set(DeliveryState)
    # What is final is taken up again at most; what is not final can come to an end.
    assert all(
        TRANSITIONS[state] <= {DeliveryState.POSTING, DeliveryState.PENDING, DeliveryState.FAILED}
        for state in DeliveryState
        if state.is_final
    )
    assert all(TRANSITIONS[state] for state in DeliveryState if not state.is_final)


def test_every_target_is_told():
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    told = re.findall(r"^\| `make ([a-z-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(set(targets) - {"help"})


def test_every_command_that_exits_with_1_is_told():
    [told] = re.findall(r"^\| 1 \| (.*) \|$", (ROOT / "docs" / "running.md").read_text(), re.MULTILINE)
    says_so = {name for name, command in _commands(get_command(app)) if "xits with 1" in (command.help or "")}
    assert len(says_so) > 2
    assert says_so <= set(re.findall(r"`wakupush ([a-z -]+?)(?: --once)?`", told))


def test_every_module_has_a_row_among_the_layers():
    packages = {path.parent.relative_to(ROOT) for path in ROOT.glob("*/__init__.py")} - {Path("wakupush")}
    assert sorted(_rows("## Layers")) == sorted(_within(ROOT / "wakupush") | packages | {Path("proto")})


def test_every_room_of_the_server_has_a_row():
    rows = [path for path in _rows("### The rooms of the server") if path.parent != Path()]
    assert sorted(rows) == sorted(_within(ROOT / "wakupush" / "server"))


def test_steps_of_the_inbox_are_told_in_the_order_in_which_they_are_done():
    told = [path.stem for path in _rows("### The rooms of the server") if path.parent == Path()]
    called = [node for node in ast.walk(ast.parse(inspect.getsource(steps.run))) if isinstance(node, ast.Call)]
    called.sort(key=lambda node: (node.lineno, node.col_offset))
    done = [_module_of(ast.unparse(node.func)) for node in called]
    assert [name for name in dict.fromkeys(done) if name] == told


@pytest.mark.parametrize(
    ("contract", "begins"),
    [("imports point one way", "wakupush.cli"), ("the server's rooms point one way", "schedule")],
)
def test_layers_are_those_of_import_linter(contract, begins):
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["name"] == contract]
    pattern = rf"^```text\n({re.escape(begins)} .*?)^```$"
    [drawn] = re.findall(pattern, ARCHITECTURE.read_text(), re.MULTILINE | re.DOTALL)
    assert re.split(r"\s+→ ", drawn.strip()) == layers


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in _anchors(target), f"{link}: there is no such heading"


#: Hosts of package registries, and folders of single machines, written so that this file names none of them.
FORBIDDEN = (
    r"p[y]pi[.]org",
    r"p[y]thonhosted",
    r"n[p]mjs[.]",
    r"c[r]ates[.]io",
    r"p[r]oxy[.]golang",
    r"(?<![\w.])/(w[o]rk|r[o]ot|h[o]me|U[s]ers)/",
)


#: Folders of the images, and of a test that looks into them.
IN_IMAGES = re.compile(r"target=/r[o]ot/[.]cache/pip|\"/h[o]me/file\"")


def test_no_registry_and_no_path_of_a_machine_is_named():
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {}
    for name in tracked.split("\0"):
        with suppress(UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            texts[name] = IN_IMAGES.sub("", (ROOT / name).read_text())
    assert len(texts) > 500
    assert not [name for name, text in texts.items() if re.search("|".join(FORBIDDEN), text, re.IGNORECASE)]


@pytest.mark.parametrize(
    "document",
    [each for each in DOCUMENTS if each.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_named_settings_exist(document):
    # `WAKUPUSH_LIMITS__SEGMENT…` stands for those that begin so, `…__MAX_WAIT` for the one whose group was just named.
    exist = {name.strip("`") for name, *_ in settings_table()}
    text = document.read_text()
    for name, more in set(re.findall(r"\b(WAKUPUSH_[A-Z][A-Z_]*)(…?)", text)):
        if not name.startswith("WAKUPUSH_TEST_"):
            assert any(each.startswith(name) if more else each == name for each in exist), name
    for name in set(re.findall(r"`…(__[A-Z_]+)`", text)):
        assert any(each.endswith(name) for each in exist), name


def _module_of(name: str) -> str | None:
    """Return in which module of the inbox a function of `steps` is done, None if in none."""
    if name == "_decide":
        return "decide"  # by whom of these, a table says
    function: Any = steps
    for part in name.split("."):
        function = getattr(function, part, None)
    if not inspect.isfunction(function) or function.__module__ == steps.__name__:
        return None
    package, _, module = function.__module__.rpartition(".")
    return module if package == steps.__package__ else None


def _section(heading: str) -> str:
    """Return what is below a heading of docs/architecture.md, up to the next one."""
    pattern = rf"^{re.escape(heading)}$(.*?)^##"
    [section] = re.findall(pattern, ARCHITECTURE.read_text(), re.MULTILINE | re.DOTALL)
    return section


def _rows(heading: str) -> list[Path]:
    return list(map(Path, re.findall(r"^\| `([\w/.]+)` \|", _section(heading), re.MULTILINE)))


def _within(folder: Path) -> set[Path]:
    """Return the modules and packages in a folder."""
    found = [*folder.glob("[!_]*.py"), *(path.parent for path in folder.glob("*/__init__.py"))]
    return {path.relative_to(ROOT) for path in found}


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for inner, each in getattr(command, "commands", {}).items():
        yield from _commands(each, f"{name} {inner}".strip())


def _code(text: str) -> str:
    return f"`{text}`"


def _variable(*names: str) -> str:
    return _code("WAKUPUSH_" + "__".join(name.upper() for name in names))


def _default(field) -> str:
    value = field.default
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    shown = _code(value if isinstance(value, str) else json.dumps(value))
    others = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return " or ".join([shown, *(_code(other) for other in others if other != value)])


def _comments(of: type) -> dict[str, str]:
    """Return the ``#:`` comments above the names in a class."""
    found = re.findall(r"((?: *#: .*\n)+) *(\w+)", inspect.getsource(of))
    return {name: " ".join(line.strip().removeprefix("#: ") for line in text.splitlines()) for text, name in found}


def _anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_an_app_needs_only_what_the_client_package_exports():
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "client.md").read_text(), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^from (wakupush\S*)", "\n".join(blocks), re.MULTILINE)) == {"wakupush.client"}


def write_tables() -> None:
    """Put the tables of the code into the documents, each in the place of the one that begins like it."""
    for rows, document in TABLES.items():
        table = markdown(rows())
        begins = "\n".join(table.splitlines()[:2]) + "\n"
        before, found, after = document.read_text().partition(begins)
        if not found:
            sys.exit(f"{document.relative_to(ROOT)} has no table that begins with\n{begins}")
        document.write_text(before + table + re.sub(r"\A(\|.*\n)*", "", after))


def test_what_happens_when_a_part_dies_is_shown_by_tests():
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## What happens when a part dies\n")[1].split("\n## ")[0]
    rows = [row.split(" | ") for row in section.splitlines() if row.startswith("| ") and not row.startswith("| ---")]
    assert {len(row) for row in rows} == {5}
    for row in rows[1:]:
        path, _, name = row[4].strip("`| ").partition("::")
        assert f"def {name or 'test_'}" in (ROOT / path).read_text(), row[0]


if __name__ == "__main__":
    write_tables()

"""The documents say what the code says: every table of theirs is made from the code and compared."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import SecretStr
from typer.main import get_command

from wakupush.cli import app
from wakupush.model import events, limits, queues, roles
from wakupush.model.deliveries import TRANSITIONS, DeliveryState
from wakupush.model.failures import BY_LABEL, Failure
from wakupush.redis import users
from wakupush.runtime import metrics, profiles, settings
from wakupush.runtime.docstrings import attribute_docstrings
from wakupush.server.beat.jobs import JOBS

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
#: Pages that tell of the code as it is now: a decision record tells of it as of its time.
PRESENT = [each for each in DOCUMENTS if each.name != "CHANGELOG.md" and each.parent.name != "adr"]
#: Folders of code that pages name by the path from the root.
CODE = {"wakupush", "ingest", "workers", "pipeline", "tests", "benchmarks", "deploy", "docker", "proto", "examples"}
TRACKED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
    "\0"
)
PAGES = [ROOT / name for name in TRACKED if name.endswith(".md") and (ROOT / name).exists()]

Row = tuple[str, ...]


def settings_table() -> Iterator[Row]:
    yield "variable", "default", "meaning"
    meanings = attribute_docstrings(settings.Settings)
    for name, field in settings.Settings.model_fields.items():
        group, place = field.annotation, (name,)
        if name == "apps":
            group, place = settings.AppSettings, (name, "NAME")
        if inspect.isclass(group) and issubclass(group, settings.Group):
            inner_meanings = attribute_docstrings(group)
            for inner, each in group.model_fields.items():
                yield _variable(*place, inner), _default(each), inner_meanings.get(inner, "")
        elif name != "profiles":
            yield _variable(name), _default(field), meanings[name]


#: What nearly every operator sets, or is asked about; in the order of the page.
BASIC = (
    *("PUBLIC_KEY", "IDENTITY_KEY_FILE", "WAKU__URL", "WAKU__SHARDS", "RECONCILE__STORES", "RECONCILE__STORE_PEERS"),
    *("REDIS__URL", "REDIS__SENTINELS", "POSTGRES__DSN", "POSTGRES__DIRECT_DSN", "POSTGRES__POOL_SIZE"),
    *("GORUSH__URL", "GORUSH__DIALECT", "GORUSH__FEEDBACK_SECRET", "GORUSH__CONCURRENCY", "APPS__NAME__TOPICS"),
    *("DELIVERY__MAX_ATTEMPTS", "DELIVERY__MESSAGE_TIME_TO_LIVE", "LIMITS__FIRST_REGISTRATIONS_PER_HOUR"),
    *("RETENTION__EVENTS", "LOG_FORMAT", "LOG_LEVEL", "HTTP_HOST", "HTTP_PORT", "TRACING__ENDPOINT"),
)


def basic_settings_table() -> Iterator[Row]:
    head, *rows = settings_table()
    yield head
    by_variable = {row[0]: row for row in rows}
    yield from (by_variable[f"`WAKUPUSH_{name}`"] for name in BASIC)


def profiles_table() -> Iterator[Row]:
    yield "field", "values, default", "meaning"
    for name, field in profiles.ContentTable.model_fields.items():
        yield _code(name), _values(field), attribute_docstrings(profiles.ContentTable)[name]
    yield "`data`", "", f"Of the profile only. {attribute_docstrings(profiles.ProfileTable)['data']}"


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
    tasks[queues.REST] = [queue.task for queue in queues.QUEUES.values()]
    for name, of_queue in tasks.items():
        yield _code(name), ", ".join(map(_code, of_queue))


def schedule_table() -> Iterator[Row]:
    yield "job", "pause", "what it does"
    for work, seconds in JOBS.items():
        yield _code(work.__name__), f"{seconds:g} s", re.split("[;.]", inspect.getdoc(work))[0] + "."


def roles_table() -> Iterator[Row]:
    yield "role in Postgres", "commands"
    for role, commands in roles.COMMANDS.items():
        yield f"[{_code(role)}](../../wakupush/postgres/grants/{role}.sql)", ", ".join(map(_code, commands))


def redis_users_table() -> Iterator[Row]:
    yield "user of Redis", "commands", "rules"
    for user, commands in users.COMMANDS.items():
        yield _code(user), ", ".join(map(_code, commands)), _code(users.rules(user))


def commands_table() -> Iterator[Row]:
    yield "command", "what it does", "arguments and options"
    for name, command in _commands(get_command(app)):
        if name and not getattr(command, "commands", {}):
            says = " ".join((command.help or "").split("\n\n")[0].split())
            takes = [each.opts[0] if each.opts[0].startswith("-") else each.name.upper() for each in command.params]
            yield _code(f"wakupush {name}"), says, ", ".join(map(_code, takes))


TABLES = {
    commands_table: REFERENCE / "commands.md",
    event_fields_table: REFERENCE / "events.md",
    event_kinds_table: REFERENCE / "events.md",
    failures_table: REFERENCE / "failures.md",
    metrics_table: REFERENCE / "metrics.md",
    queues_table: REFERENCE / "queues.md",
    redis_users_table: REFERENCE / "redis-users.md",
    roles_table: REFERENCE / "roles.md",
    schedule_table: REFERENCE / "queues.md",
    profiles_table: ROOT / "docs" / "operating" / "profiles.md",
    settings_table: REFERENCE / "settings.md",
    basic_settings_table: REFERENCE / "basic-settings.md",
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
    text = (REFERENCE / "tables.md").read_text()
    drawn = re.findall(r"^ +(\w+|\[\*\]) --> (\w+|\[\*\])", text, re.MULTILINE)
    legal = {(before.value, after.value) for before, targets in TRANSITIONS.items() for after in targets}
    begins = {("[*]", DeliveryState.POSTING.value)}
    ends = {(state.value, "[*]") for state in DeliveryState if state.is_final}
    assert sorted(drawn) == sorted(legal | begins | ends)


def test_diagram_matches_the_transitions():
    assert set(TRANSITIONS) == set(DeliveryState)
    reached = {DeliveryState.POSTING}
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


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in _anchors(target), f"{link}: there is no such heading"


def test_pages_that_files_name_exist():
    """A docstring, a comment, a log line or a setting of the chart names a page by its path from the root."""
    for name, text in _texts().items():
        for path, anchor in re.findall(r"(?<![\w./-])(docs/[\w/-]+\.\w+)(?:#([\w-]+))?", text):
            assert (ROOT / path).exists(), f"{name}: {path} does not exist"
            assert not anchor or anchor in _anchors(ROOT / path), f"{name}: {path}#{anchor}: there is no such heading"


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
    texts = {name: IN_IMAGES.sub("", text) for name, text in _texts().items()}
    assert len(texts) > 500
    assert not [name for name, text in texts.items() if re.search("|".join(FORBIDDEN), text, re.IGNORECASE)]


@pytest.mark.parametrize("document", PRESENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_code_exists(document):
    for path, name in set(re.findall(r"`((?:\w+/)+[\w.-]+\.(?:py|sql|js))(?:::(\w+))?", document.read_text())):
        if path.partition("/")[0] in CODE and "NNNN" not in path:
            assert (ROOT / path).exists(), path
            assert not name or re.search(rf"\b(def|class) {name}\b", (ROOT / path).read_text()), f"{path}::{name}"


@pytest.mark.parametrize(
    "document",
    [each for each in DOCUMENTS if each.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_named_settings_exist(document):
    # `WAKUPUSH_LIMITS__SEGMENT…` stands for those that begin so, `…__MAX_WAIT` for the one whose group was just named.
    exist = {name.strip("`") for name, *_ in settings_table()}
    exist |= {each.envvar for _, command in _commands(get_command(app)) for each in command.params if each.envvar}
    text = document.read_text()
    for name, more in set(re.findall(r"\b(WAKUPUSH_[A-Z][A-Z_]*)(…?)", text)):
        if not name.startswith("WAKUPUSH_TEST_") and name != settings.FILE_VARIABLE:
            assert any(each.startswith(name) if more else each == name for each in exist), name
    for name in set(re.findall(r"`…(__[A-Z_]+)`", text)):
        assert any(each.endswith(name) for each in exist), name


@cache
def _texts() -> dict[str, str]:
    """Return the text files of the repository by name."""
    texts = {}
    for name in TRACKED:
        with suppress(UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            texts[name] = (ROOT / name).read_text()
    return texts


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for inner, each in getattr(command, "commands", {}).items():
        yield from _commands(each, f"{name} {inner}".strip())


def _code(text: str) -> str:
    return f"`{text}`"


def _variable(*names: str) -> str:
    return _code("WAKUPUSH_" + "__".join(name.upper() for name in names))


def _values(field) -> str:
    if field.annotation is bool:
        return "`true`" if field.default else "`false`"
    return _default(field) if get_origin(field.annotation) is Literal else {str: "text"}.get(field.annotation, "list")


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
    default = _code(value if isinstance(value, str) else json.dumps(value))
    others = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return " or ".join([default, *(_code(other) for other in others if other != value)])


def _comments(of: type) -> dict[str, str]:
    """Return the ``#:`` comments above the names in a class."""
    comments = re.findall(r"((?: *#: .*\n)+) *(\w+)", inspect.getsource(of))
    return {name: " ".join(line.strip().removeprefix("#: ") for line in text.splitlines()) for text, name in comments}


def _anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_metrics_failures_and_limits_of_the_security_page_exist():
    text = (ROOT / "docs" / "internals" / "security.md").read_text()
    for pattern, names in (
        (r"wakupush_[a-z_]+", {name.strip("`") for name, *_ in metrics_table()}),
        (r'failure="(\w+)"', BY_LABEL.keys()),
        (r'limit="(\w+)"', {value for value in vars(limits).values() if isinstance(value, str)}),
    ):
        named = set(re.findall(pattern, text))
        assert named
        assert named <= names


def test_apps_need_only_the_clients_exports():
    text = (REFERENCE / "client.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^from (wakupush\S*)", "\n".join(blocks), re.MULTILINE)) == {"wakupush.client"}


def write_tables() -> None:
    """Put the tables of the code into the documents, each in the place of the one that begins like it."""
    for rows, document in TABLES.items():
        table = markdown(rows())
        begins = "\n".join(table.splitlines()[:2]) + "\n"
        before, heading, after = document.read_text().partition(begins)
        if not heading:
            sys.exit(f"{document.relative_to(ROOT)} has no table that begins with\n{begins}")
        document.write_text(before + table + re.sub(r"\A(\|.*\n)*", "", after))


if __name__ == "__main__":
    write_tables()

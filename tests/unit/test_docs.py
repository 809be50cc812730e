"""The documents say what the code says: every table of theirs is made from the code and compared."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import SecretStr

from wakupush import events, metrics, queues, settings
from wakupush.failures import Failure
from wakupush.server.schedule import JOBS
from wakupush.state.deliveries import INITIAL, TRANSITIONS, State

ROOT = Path(__file__).parents[2]
README, ARCHITECTURE = ROOT / "README.md", ROOT / "docs" / "architecture.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

Row = tuple[str, ...]


def settings_table() -> Iterator[Row]:
    yield "variable", "default", "meaning"
    for name, field in settings.Settings.model_fields.items():
        group = field.annotation
        if inspect.isclass(group) and issubclass(group, settings.Group):
            for inner, each in group.model_fields.items():
                yield _variable(name, inner), _default(each), each.description
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


TABLES = {
    settings_table: README,
    failures_table: ARCHITECTURE,
    event_kinds_table: ARCHITECTURE,
    event_fields_table: ARCHITECTURE,
    metrics_table: ARCHITECTURE,
    queues_table: ARCHITECTURE,
    schedule_table: ARCHITECTURE,
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
        pytest.fail(f"{document.relative_to(ROOT)} must have exactly this table:\n\n{table}", pytrace=False)


def test_state_diagram_is_that_of_the_code():
    [section] = re.findall(r"^### Deliveries$(.*?)^## ", ARCHITECTURE.read_text(), re.MULTILINE | re.DOTALL)
    drawn = re.findall(r"^ +(\w+|\[\*\]) --> (\w+|\[\*\])", section, re.MULTILINE)
    legal = {(before.value, after.value) for before, targets in TRANSITIONS.items() for after in targets}
    begins = {("[*]", INITIAL.value)}
    ends = {(state.value, "[*]") for state in State if state.is_final}
    assert sorted(drawn) == sorted(legal | begins | ends)


def test_every_state_can_be_reached_and_left_as_it_says():
    assert set(TRANSITIONS) == set(State)
    reached = {INITIAL}
    while new := {after for state in reached for after in TRANSITIONS[state]} - reached:
        reached |= new
    assert reached == set(State)
    # What is final is taken up again at most; what is not final can come to an end.
    assert all(TRANSITIONS[state] <= {State.POSTING, State.PENDING, State.FAILED} for state in State if state.is_final)
    assert all(TRANSITIONS[state] for state in State if not state.is_final)


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_registry_and_no_path_of_a_machine_is_named(document):
    assert not re.search("|".join(FORBIDDEN), document.read_text(), re.IGNORECASE)


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

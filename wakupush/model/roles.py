"""The roles of Postgres, one for each process. ``wakupush/postgres/grants/`` has the rights of each."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """A role, by its name in Postgres."""

    REGISTRATION = "wakupush_registration"
    QUERY = "wakupush_query"
    DISPATCH = "wakupush_dispatch"
    REST = "wakupush_rest"
    SCHEDULE = "wakupush_schedule"
    RECONCILE = "wakupush_reconcile"
    EXPORTER = "wakupush_exporter"
    FEEDBACK = "wakupush_feedback"
    OPERATOR = "wakupush_operator"
    PIPELINE = "wakupush_pipeline"
    LAKE = "wakupush_lake"
    REBUILD = "wakupush_rebuild"


#: The commands of each role that reach Postgres, by their first words; `wakupush migrate` connects as the owner.
COMMANDS: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.REGISTRATION: ("worker registration",),
    Role.QUERY: ("worker query",),
    Role.DISPATCH: ("worker dispatch",),
    Role.REST: ("worker rest",),
    Role.SCHEDULE: ("beat",),
    Role.RECONCILE: ("ingest reconcile",),
    Role.EXPORTER: ("exporter",),
    Role.FEEDBACK: ("feedback",),
    Role.OPERATOR: ("why", "status", "dead-letters", "quarantine", "tokens", "identity", "doctor"),
    Role.PIPELINE: ("pipeline export",),
    Role.LAKE: ("pipeline tidy", "pipeline report", "pipeline capacity"),
    Role.REBUILD: ("pipeline rebuild", "pipeline warm-topics", "import reference", "export reference", "apps assign"),
}

#: Seconds that a statement of these roles may take, in the place of the setting.
STATEMENT_SECONDS: Final[Mapping[Role, float]] = {Role.EXPORTER: 3.0, Role.FEEDBACK: 2.0}
#: Roles whose statements may take as long as they need: Spark reads for hours.
WITHOUT_TIMEOUTS: Final = frozenset({Role.PIPELINE, Role.LAKE})

"""Examples of commands, which stand below their help."""

from __future__ import annotations

import typer

_KEY = "0x04…"

#: By the words of the command.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("wakupush demo",),
    "dev": ("wakupush dev", "wakupush dev --waku-url http://127.0.0.1:8645 --identity-key identity.key"),
    "replay": ("wakupush replay recording.json --waku-url http://127.0.0.1:8645 --rate 100",),
    "keygen": ("wakupush keygen identity.key",),
    "public-key": ("wakupush public-key identity.key",),
    "identity rotate": ("wakupush identity rotate identity.key new.key",),
    "identity status": ("wakupush identity status",),
    "identity retire": ("wakupush identity retire new.key newest.key",),
    "migrate": ("WAKUPUSH_POSTGRES__DSN=postgresql://owner@db/wakupush wakupush migrate",),
    "settings": ("wakupush settings --set", "wakupush settings --docs WAKUPUSH_WAKU__URL"),
    "profile": ("wakupush profile status",),
    "apps assign": ("wakupush apps assign --dry-run",),
    "worker": ("wakupush worker dispatch --concurrency 2",),
    "beat": ("wakupush beat",),
    "feedback": ("wakupush feedback",),
    "exporter": ("wakupush exporter",),
    "canary": ("WAKUPUSH_CANARY__GORUSH_URL=http://canary:9104 wakupush canary",),
    "ingest live": (f"WAKUPUSH_PUBLIC_KEY={_KEY} wakupush ingest live",),
    "ingest reconcile": ("wakupush ingest reconcile --once --since 2h",),
    "status": ("wakupush status --watch",),
    "why": (f"wakupush why --user {_KEY} --around 10:31", "wakupush why --last-hour"),
    "doctor": ("wakupush doctor",),
    "test-push": ("wakupush test-push --platform ios --topic im.example.app --device-token 4f3a91",),
    "dead-letters list": ("wakupush dead-letters list --platform ios --newer-than 2h",),
    "dead-letters show": ("wakupush dead-letters show 3fa9",),
    "dead-letters retry": (
        "wakupush dead-letters retry --all --platform ios --newer-than 2h",
        "wakupush dead-letters retry 3fa9",
    ),
    "dead-letters drop": ("wakupush dead-letters drop --all --older-than 3d --yes",),
    "dead-letters stats": ("wakupush dead-letters stats",),
    "quarantine list": ("wakupush quarantine list --queue query",),
    "quarantine show": ("wakupush quarantine show 3fa9",),
    "quarantine retry": ("wakupush quarantine retry --all --newer-than 2h",),
    "quarantine drop": ("wakupush quarantine drop 3fa9",),
    "tokens list": ("wakupush tokens list",),
    "tokens revive": ("wakupush tokens revive --platform ios --since 2h",),
    "tokens forget": ("wakupush tokens forget ios",),
    "breaker list": ("wakupush breaker list",),
    "breaker open": ("wakupush breaker open android --for 10m",),
    "breaker close": ("wakupush breaker close android",),
    "import reference": ("wakupush import reference statusd.db --config statusd.json --dry-run",),
    "export reference": ("wakupush export reference statusd.db",),
    "pipeline export": ("wakupush pipeline export --warehouse lake",),
    "pipeline tidy": ("wakupush pipeline tidy --warehouse lake",),
    "pipeline report": ("wakupush pipeline report --from 2026-11-01 --to 2026-11-28",),
    "pipeline capacity": ("wakupush pipeline capacity --wait 0.1 --users 2",),
    "pipeline fetch-archive": ("wakupush pipeline fetch-archive --since 2026-11-01",),
    "pipeline rebuild": ("wakupush pipeline rebuild",),
    "pipeline warm-topics": ("wakupush pipeline warm-topics",),
    "pipeline synthesize": ("wakupush pipeline synthesize --messages 100000 --days 28 --warehouse lake",),
    "client keygen": ("wakupush client keygen alice.key",),
    "client whoami": ("wakupush client --key alice.key whoami",),
    "client register": (
        f"wakupush client --key alice.key register --server {_KEY} --device-token 4f3a91",
        f"wakupush client --key alice.key register --server {_KEY} --device-token 4f3a91 --contacts-only",
    ),
    "client status": ("wakupush client --key alice.key status",),
    "client unregister": ("wakupush client --key alice.key unregister",),
    "client advertise": ("wakupush client --key alice.key advertise",),
    "client discover": (f"wakupush client --key bob.key discover {_KEY}",),
    "client query": (f"wakupush client --key bob.key query {_KEY}",),
    "client send": (f'wakupush client --key bob.key send {_KEY} --chat general --text "Good morning"',),
    "client test-push": ("wakupush client --key alice.key test-push",),
    "client listen": (f"wakupush client --key alice.key listen {_KEY} --seconds 60",),
}


def add_examples(app: typer.Typer, group: str = "") -> None:
    """Put examples below the help of each command of an app, and of its groups."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "").replace("_", "-")
        examples = EXAMPLES.get(f"{group} {name}".strip(), ())
        if examples:
            # An empty line parts lines in an epilog.
            command.epilog = "\n\n".join(("Examples:" if len(examples) > 1 else "Example:", *examples))
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            add_examples(inner.typer_instance, f"{group} {inner.name}".strip())

"""The named SQL of a folder, as Postgres prepares it."""

import re
from pathlib import Path

from wakupush.postgres import named_sql

#: That of the present code.
SQL = Path(named_sql.__file__).parent / "sql"


def statements(folder):
    """Every named query of a folder, with `$1` instead of psycopg's placeholders."""
    for file in sorted(folder.glob("*.sql")):
        _, *parts = named_sql._NAME.split(file.read_text())
        for name, sql in zip(parts[::2], parts[1::2], strict=True):
            # Conditions that are put into others are asked by themselves.
            table = "quarantine" if file.stem == "quarantine" else "deliveries"
            whole = f"SELECT FROM {table} WHERE true {sql}" if sql.startswith("AND ") else sql
            names = sorted(set(re.findall(r"%\((\w+)\)[sbt]", whole)))
            for number, parameter in enumerate(names, start=1):
                whole = re.sub(rf"%\({parameter}\)[sbt]", f"${number}", whole)
            yield f"{file.stem}.{name}", whole.replace("{conditions}", "").replace("%%", "%")

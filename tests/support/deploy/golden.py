"""`make golden`: write anew what is made of the chart and of the program.

These are the golden file, the users of Redis, the part of values.schema.json that is the program's settings, and the
table in README.md.
Look at the differences before you commit them.
"""

import re

from support.deploy.chart import CHART, GOLDEN, REDIS_USERS, golden, redis_users, values_schema, values_table

TABLE = re.compile(r"\| value \| default \| meaning \|\n(\|.*\n)+")


def main() -> None:
    REDIS_USERS.write_text(redis_users())
    (CHART / "values.schema.json").write_text(values_schema())
    readme = CHART / "README.md"
    readme.write_text(TABLE.sub(lambda _: values_table(), readme.read_text()))
    GOLDEN.write_text(golden())


if __name__ == "__main__":
    main()

"""Each process of the running server connects to Postgres as its own role.

`running_stack` looks into Postgres' log: a right that is missing anywhere fails every test of this folder.
"""

from wakupush.devnet.processes import wait_until
from wakupush.model.roles import COMMANDS, Role

POOLS = {role for role, commands in COMMANDS.items() if any(command.startswith("worker ") for command in commands)}
# The pool `rest` is not needed, and does not run here.
PROCESSES = {*POOLS - {Role.REST}, Role.SCHEDULE, Role.RECONCILE, Role.FEEDBACK}
CONNECTED = "SELECT DISTINCT usename FROM pg_stat_activity WHERE application_name = 'wakupush'"


def test_each_process_connects_as_its_own_role(stack):
    with stack.connect() as connection:

        def connected():
            return {name for (name,) in connection.execute(CONNECTED)}

        wait_until(lambda: connected() >= PROCESSES, timeout=60, what="every process is connected")
        assert connected() == PROCESSES

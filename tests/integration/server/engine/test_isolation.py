"""A message whose handling meets an error of ours: what becomes of it alone, on a real Postgres and Redis."""

import pytest

from support.served import work_off
from wakupush.devnet import messages
from wakupush.model.queues import REGISTRATION
from wakupush.protocol import payload, registration


@pytest.mark.parametrize(("module", "function"), [(payload, "open_asymmetric"), (registration, "is_plausible")])
def test_what_cannot_be_opened_or_read_ends_in_quarantine(server, client, monkeypatch, module, function):
    message = messages.register(client, server.key, messages.registration(client, server.key))

    def fail(*_, **__):
        raise LookupError("ours")

    monkeypatch.setattr(module, function, fail)
    server.handle(REGISTRATION, message)
    work_off(server, REGISTRATION)
    assert server.rows("SELECT reason, attempts FROM quarantine") == [("LookupError", 3)]
    assert server.rows("SELECT attempts FROM message_attempts") == []

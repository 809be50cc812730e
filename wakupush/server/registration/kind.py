"""Registrations, as the engine knows them."""

from typing import Final

from wakupush.model.queues import REGISTRATION
from wakupush.protocol.application import Type
from wakupush.server.engine.kind import Kind
from wakupush.server.registration.charge import charge, express
from wakupush.server.registration.decide import decide
from wakupush.server.registration.lookup import measure, proven
from wakupush.server.registration.read import owner, read
from wakupush.server.registration.store import store

REGISTRATIONS: Final = Kind(
    queue=REGISTRATION,
    type=Type.PUSH_NOTIFICATION_REGISTRATION,
    # Clients send a registration again if its answer was lost, and their keys stay.
    repeats_answers=False,
    read=read,
    measure=measure,
    express=express,
    proven=proven,
    charge=charge,
    decide=decide,
    store=store,
    owner=owner,
)

"""Push requests, as the engine knows them."""

from typing import Final

from wakupush.model.queues import DISPATCH
from wakupush.protocol.application import Type
from wakupush.server.engine.kind import Kind
from wakupush.server.push.charge import charge, exceeds, express
from wakupush.server.push.correct import correct
from wakupush.server.push.decide import decide
from wakupush.server.push.lookup import measure
from wakupush.server.push.read import read
from wakupush.server.push.store import store

PUSH_REQUESTS: Final = Kind(
    queue=DISPATCH,
    type=Type.PUSH_NOTIFICATION_REQUEST,
    repeats_answers=True,
    read=read,
    measure=measure,
    express=express,
    charge=charge,
    exceeds=exceeds,
    decide=decide,
    store=store,
    correct=correct,
)

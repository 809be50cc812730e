"""Queries, as the engine knows them."""

from typing import Final

from wakupush.model.queues import QUERY
from wakupush.protocol.application import Type
from wakupush.server.engine.kind import Kind
from wakupush.server.query.charge import charge, exceeds, express
from wakupush.server.query.decide import decide
from wakupush.server.query.lookup import keys, look_up, measure
from wakupush.server.query.read import read
from wakupush.server.query.store import store

QUERIES: Final = Kind(
    queue=QUERY,
    type=Type.PUSH_NOTIFICATION_QUERY,
    repeats_answers=True,
    keys=keys,
    read=read,
    measure=measure,
    express=express,
    charge=charge,
    exceeds=exceeds,
    look_up=look_up,
    decide=decide,
    store=store,
)

"""What an import of the reference's database tells, and what it leaves in ours."""

import json

from support.reference_database import CONTENT, IDENTITY_OF
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistration,
)
from wakupush.protocol.registration import of

#: What this server refuses of them: a type of token that the specification does not know.
REFUSED = ("judy", "3ddd5c1d-1292-09fd-52a2-4d1545e5345c")
ROWS = [row for row in CONTENT["registrations"] if (row["user"], row["installation_id"]) != REFUSED]
TABLES = ("registrations", "query_topics", "admitted_requests")


def objects(result):
    *reports, totals = map(json.loads, result.stdout.splitlines())
    return reports, totals


def state(connection):
    """Return how many rows each table has that an import writes to."""
    return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}


NOTHING = dict.fromkeys(TABLES, 0)


def expected_of(row):
    """What is to be stored of a row of the fixtures: version, device, allowed_key_list, digests and flags."""
    place = IDENTITY_OF.installation(bytes.fromhex(row["public_key"]), row["installation_id"])
    if row["registration"] is None:
        return place, (int(row["version"]), None, None)
    registration = of(PushNotificationRegistration.FromString(bytes.fromhex(row["registration"])))
    return place, (int(row["version"]), registration, registration.allowed_key_list or None)

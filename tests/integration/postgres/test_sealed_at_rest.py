"""Nothing secret is in the clear in Postgres; and what rows cost who names them."""

import random
import secrets

import pytest

from support.served import as_beat, request
from wakupush.devnet import messages
from wakupush.devnet.messages import PushNotificationRegistration
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.postgres.named_sql import load
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import shake256_64
from wakupush.server.beat.deliveries import claim_due
from wakupush.server.delivery import next_attempts

PHONE = "3f4a7c02-11a9-496c-a63a-54582dca8cef"
CHAT, AUTHOR = shake256_64(b"chat"), shake256_64(b"author")
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"


def dump(connection):
    """Return everything that the tables hold, as bytes."""
    content = b""
    for (table,) in connection.execute(TABLES).fetchall():
        for row in connection.execute(f"SELECT * FROM {table}"):
            content += b"\0".join(map(_bytes, row))
    return content


def _bytes(value):
    if isinstance(value, list):
        return b"\0".join(map(_bytes, value))
    return value if isinstance(value, bytes) else str(value).encode()


def traces(connection, planted):
    """Return the planted values that a dump has, as they are, as hex or as text of a list."""
    content = dump(connection)
    return {name for name, value in planted.items() if value in content or value.hex().encode() in content}


def plant(server, client):
    """Register with secrets and ask for a push that stays under way; return what must not be found."""
    planted = {name: secrets.token_bytes(64) for name in ("allowed", "blocked", "muted", "mention", "chat", "message")}
    token = secrets.token_hex(32)
    lists = {
        "allowed_key_list": [planted["allowed"]],
        "blocked_chat_list": [planted["blocked"], AUTHOR],
        "muted_chat_list": [planted["muted"]],
        "allowed_mentions_chat_list": [planted["mention"]],
    }
    content = server.register(
        client, installation_id=PHONE, device_token=f"unavailable{token}", apn_topic="im.planted", **lists
    )
    server.handle(DISPATCH, request(client, server, content, chat_id=planted["chat"], message=planted["message"]))
    assert server.rows("SELECT state FROM deliveries") == [("pending",)]
    texts = {
        "device token": token,
        "access token": content.access_token,
        "installation": PHONE,
        "APN topic": "im.planted",
    }
    return planted | {"grant": content.grant} | {name: text.encode() for name, text in texts.items()}


def again(client, server, content, version, **fields):
    """Return another version of a registration."""
    newer = PushNotificationRegistration()
    newer.CopyFrom(content)
    newer.version = version
    for name, value in fields.items():
        newer.ClearField(name)
        newer.MergeFrom(PushNotificationRegistration(**{name: value}))
    newer.grant = grant(client, server.key, newer.access_token)
    return newer


def send(server, client, content):
    server.handle(REGISTRATION, messages.register(client, server.key, content))
    assert server.outcomes(client) == ["success"]


def retry(server):
    """Make the next attempt of all that is pending; return the states and failures."""
    server.rows("UPDATE deliveries SET next_attempt_at = now() WHERE state = 'pending' RETURNING 1")
    claim_due(as_beat(server.context))
    attempts = dict(server.rows("SELECT delivery_key, attempt FROM deliveries WHERE state = 'pending'"))
    next_attempts.attempt_due(server.context, attempts, "")
    return server.rows("SELECT state, failure FROM deliveries")


# What is stored


def test_a_dump_gives_up_no_secret(server, client):
    planted = plant(server, client)
    with server.context.pool.connection() as connection:
        assert traces(connection, planted) == set()
        assert traces(connection, {"key hash": client.public_key.key_hash}) == {"key hash"}  # so it would find some
    assert retry(server) == [("pending", "platform_unavailable")]
    server.reroute("good")
    assert retry(server) == [("delivered", None)]
    [push] = [push for push in server.pushes() if push.notification["tokens"] == ["good"]]
    assert push.notification["data"]["message"] == "0x" + planted["message"].hex()
    assert push.notification["data"]["installation_ids"] == [PHONE]
    assert server.rows("SELECT sealed_content, chat_digest, author_digest, access_token_digest FROM deliveries") == [
        (None, None, None, None)
    ]


# What a name costs


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 1000, 10_000])
def test_a_digest_is_found_exactly_where_it_is(connection, size):
    chance = random.Random(size)
    digests = sorted(chance.randbytes(16) for _ in range(size))
    edges = [digests[0], digests[-1]]
    questions = edges + chance.sample(digests, min(size, 300)) + [chance.randbytes(16) for _ in range(300)]
    questions += [bytes(16), b"\xff" * 16]
    connection.execute("CREATE TEMPORARY TABLE lists (digests bytea)")
    connection.execute("ALTER TABLE lists ALTER COLUMN digests SET STORAGE EXTERNAL")
    connection.execute("INSERT INTO lists VALUES (%s)", [b"".join(digests)])
    answers = connection.execute(
        "SELECT digest, digests_have(digests, digest) FROM lists, unnest(%s::bytea[]) AS digest", [questions]
    ).fetchall()
    digest_set = set(digests)
    assert dict(answers) == {digest: digest in digest_set for digest in questions}
    assert connection.execute(
        "SELECT digests_have(NULL, digests), digests_have(digests, NULL) FROM lists"
    ).fetchall() == [(None, None)]


def buffers(connection, query, values):
    """Return how many pages a query looks at."""
    plan = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", values).fetchone()[0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.fixture
def full(server, client):
    """A registration with full lists."""
    chance = random.Random(1)
    items = [chance.randbytes(8) for _ in range(10_000)]  # short ones, so that they are one message
    return server.register(client, installation_id=PHONE, blocked_chat_list=items), items


def named_address(server, client, content, **fields):
    address = server.context.identity.at_rest.address(
        server.context.identity.installation(client.public_key.key_hash, content.installation_id),
        **{"access_token": content.access_token, "chat_id": CHAT, "author": AUTHOR, **fields},
    )
    return {
        "key_hashes": [address.installation.key_hash],
        "installation_hashes": [address.installation.installation_hash],
        "keep": 86_400,
        "access_tokens": [address.access_token],
        "chats": [address.chat],
        "authors": [address.author],
    }


def test_long_list_is_read_in_part(server, client, full):
    content, items = full
    query = load("requests")["receivers"]
    with server.context.pool.connection() as connection:
        with_token = buffers(connection, query, named_address(server, client, content))
        without = buffers(connection, query, named_address(server, client, content, access_token="wrong"))
        connection.execute("SET LOCAL enable_seqscan = off")
        whole = buffers(connection, "SELECT md5(blocked_chat_digests) FROM registrations", {})
        [row] = connection.execute(query, named_address(server, client, content, author=items[77]))
        assert row[5]
    assert without <= 6
    assert without < with_token <= 40
    assert whole > 2 * with_token


# Whoever changes what it wants is heard, also by what is under way


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, ("delivered", None)),
        ({"muted_chat_list": [CHAT]}, ("failed", "unwanted")),
        ({"blocked_chat_list": [CHAT]}, ("failed", "unwanted")),
        ({"blocked_chat_list": [AUTHOR]}, ("failed", "unwanted")),
        ({"muted_chat_list": [AUTHOR]}, ("delivered", None)),
        ({"enabled": False}, ("failed", "device_gone")),
        # The access token is looked at again only by who gives it to contacts only since.
        ({"access_token": "00000000-0000-4000-8000-000000000001"}, ("delivered", None)),
        ({"allow_from_contacts_only": True}, ("delivered", None)),
        (
            {"allow_from_contacts_only": True, "access_token": "00000000-0000-4000-8000-000000000001"},
            ("failed", "wrong_token"),
        ),
    ],
)
def test_a_retry_asks_again_what_its_device_wants(server, client, fields, outcome):
    content = server.register(client, installation_id=PHONE, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content, chat_id=CHAT, author=AUTHOR))
    assert server.rows("SELECT state FROM deliveries") == [("pending",)]
    server.pushes()
    newer = again(client, server, content, 2, device_token="good", **fields)
    server.outcomes(client)
    send(server, client, newer)
    assert retry(server) == [outcome]
    assert len(server.pushes()) == (outcome[0] == "delivered")
    assert (outcome[1] is None) or server.events("failed")[-1] == (outcome[1], None)


def test_contacts_only_device_may_renew_its_token(server, client):
    content = server.register(client, installation_id=PHONE, device_token="unavailable", allow_from_contacts_only=True)
    server.handle(DISPATCH, request(client, server, content))
    server.outcomes(client)
    send(server, client, again(client, server, content, 2, device_token="good", access_token=PHONE))
    assert retry(server) == [("delivered", None)]

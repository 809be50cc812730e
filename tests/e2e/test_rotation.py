"""Another key for clients: nothing is lost and nothing doubled, and those who know the key of before are served."""

from contextlib import closing

import pytest

from e2e.requests_load import Load
from e2e.stacks import wakupush
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.application import Type
from wakupush.protocol.grants import grant, is_granted
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.query import parse_response
from wakupush.waku.node import WakuNode

SETTINGS = {"WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE": "1000000"}
#: Messages that the client sends after each process that gets the new key.
AFTER = 20


@pytest.fixture
def stack(start_own_stack):
    return start_own_stack(settings=SETTINGS)


@pytest.fixture
def identity(stack):
    """Run a command for the server's keys; return its exit code and its lines."""

    def run(*arguments):
        process = wakupush(stack.environment, "identity", *arguments)
        return process.returncode, process.stdout.splitlines() or process.stderr.splitlines()

    return run


def give(stack, new_file, lines, after=lambda: None):
    """Give the server keys and the settings that go with them: one process after the other, while it works."""
    stack._key_file.write_text(new_file.read_text())
    settings = {name: value.strip("'") for name, _, value in (line.partition("=") for line in lines)}
    stack.settings = SETTINGS | settings
    for process in (*stack.workers.values(), stack.beat, stack.feedback, stack.reconcile, stack.ingest):
        process.stop()
        process._env = {**process._env, "WAKUPUSH_PREVIOUS_PUBLIC_KEYS": "[]"} | settings
        process.start()
        after()
    return PublicKey.from_hex(settings["WAKUPUSH_PUBLIC_KEY"])


def go_on(load):
    enough = len(load.send_times) + AFTER
    wait_until(lambda: len(load.send_times) >= enough, timeout=60, what="the client sends more")


def end(load):
    """Let a client end, and see that each request was answered with success and pushed once."""
    load.end()
    wait_until(load.look, timeout=120, what="all requests are answered and pushed")
    assert set(load.answered.values()) == {True}
    assert load.pushed == len(load.send_times)


def answers(stack, user):
    """Ask for a user's devices; return who signed the answers, whose grants have to name that key."""
    asker, replies = PrivateKey.generate(), []
    with WakuNode(stack.node_url) as node, closing(Observer(stack.node_url, stack.gorush_url)) as observer:
        node.publish(SHARDS[0], messages.query(asker, user.key_hash))

        def answered():
            every = [open_reply(arrival.message, (asker,)) for arrival in observer.messages()]
            replies.extend(reply for reply in every if reply and reply.type == Type.PUSH_NOTIFICATION_QUERY_RESPONSE)
            return bool(replies)

        wait_until(answered, timeout=60, what="the query is answered")
    for reply in replies:
        [info] = parse_response(reply.inner).infos
        assert is_granted(info.grant, user, reply.signer, info.access_token)
    return [reply.signer for reply in replies]


def register(stack, load, server, version):
    """Register a client's device anew, for another key of the server."""
    content = load.registered
    content.version = version
    content.grant = grant(load.key, server, content.access_token)
    with WakuNode(stack.node_url) as node, closing(Observer(stack.node_url, stack.gorush_url)) as observer:
        node.publish(SHARDS[0], messages.register(load.key, server, content))

        def answered():
            replies = [open_reply(arrival.message, (load.key,)) for arrival in observer.messages()]
            return any(reply and reply.signer == server for reply in replies)

        wait_until(answered, timeout=60, what="the registration is answered under the key that it was sealed to")


def test_a_key_is_rotated_under_load_and_retired(stack, identity, tmp_path):
    before = stack.key.public_key
    with Load(stack, stack.node_url) as old:
        go_on(old)
        code, lines = identity("rotate", stack._key_file, tmp_path / "new")
        assert code == 0
        today = give(stack, tmp_path / "new", lines, lambda: go_on(old))
        with Load(stack, stack.node_url, server=today) as new:
            go_on(new)
            assert answers(stack, old.key.public_key) == [before]
            assert answers(stack, new.key.public_key) == [today]
            code, lines = identity("status", "--json")
            assert [line.split('"registered": ')[1] for line in lines] == ["1}", "1}"]
            end(new)
        end(old)
    assert identity("retire", stack._key_file, tmp_path / "retired")[0] == 1
    assert not (tmp_path / "retired").exists()

    register(stack, old, today, version=2)
    assert answers(stack, old.key.public_key) == [today]
    code, lines = identity("retire", stack._key_file, tmp_path / "retired")
    assert (code, lines) == (0, [f"WAKUPUSH_PUBLIC_KEY={today}"])
    assert give(stack, tmp_path / "retired", lines) == today
    assert answers(stack, old.key.public_key) == [today]
    with Load(stack, stack.node_url, server=today) as last:
        go_on(last)
        end(last)

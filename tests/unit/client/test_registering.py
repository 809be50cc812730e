"""The registering client against a server of a few lines, whose messages and answers may get lost."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support.registering import (
    BOTH,
    CONTACT,
    DAY,
    OTHER,
    PHONE,
    Server,
    enabled_registrar,
    exchange,
    registered_registrar,
    registrar,
)
from wakupush.client.drivers.storage import REGISTRATION
from wakupush.client.rules.registering import MOST_VERSION, Device, Options, Status
from wakupush.model.failures import Answer
from wakupush.model.platforms import TokenType
from wakupush.protocol import registration
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.registration import RegistrationResponse, request_id

TABLET = Device(token_type=TokenType.FIREBASE, device_token="tablet")


def status(client):
    [enrolment] = client.state.enrolments
    return enrolment.status


def refuse(client, server, error, now=0.0):
    [asking] = client.due(now)
    return client.take_answer(server.public_key, RegistrationResponse(request_id(asking.sealed), error), now)


def test_nothing_happens_until_it_is_switched_on():
    client = registrar()
    client.set_options(Options(contacts_only=True))
    client.set_servers([Server().public_key])
    assert client.due(1e9) == []
    assert client.next_at is None
    assert client.infos() == []


def test_a_device_is_checked_at_once():
    with pytest.raises(ValueError, match="APN topic"):
        Device(token_type=TokenType.APN, device_token="x")
    with pytest.raises(ValueError, match="no device token"):
        Device(token_type=TokenType.FIREBASE, device_token="")


@pytest.mark.parametrize("foreign", ["request_id", "signer"])
def test_an_answer_to_something_else_is_none(foreign):
    server = Server()
    client = enabled_registrar(server)
    [asking] = client.due(0)
    answer = server.take(asking.sealed)
    signer = server.public_key
    if foreign == "request_id":
        answer = replace(answer, request_id=bytes(64))
    else:
        signer = OTHER.public_key
    assert client.take_answer(signer, answer, 0) is None
    assert status(client) is Status.ASKED


def test_without_an_answer_the_same_bytes_go_again():
    client = enabled_registrar(Server())
    now, waits, payloads = 0.0, [], set()
    for _ in range(14):
        [asking] = client.due(now)
        assert client.due(now) == []
        payloads.add(asking.sealed)
        waits.append(client.next_at - now)
        now = client.next_at
    assert len(payloads) == 1
    assert all(5 * 2**index <= wait <= 6 * 2**index for index, wait in enumerate(waits[:9]))
    assert all(wait <= 3600 * 1.2 for wait in waits)
    assert waits[-1] >= 3600


def test_wait_begins_when_the_registration_is_out():
    server = Server()
    client = enabled_registrar(server)
    [asking] = client.due(0.0)
    client.note_sent(asking, 100.0)
    assert client.next_at > 100.0
    client.take_answer(server.public_key, server.take(asking.sealed), 101.0)
    client.note_sent(asking, 102.0)
    assert client.has_settled()


def test_clock_set_back_delays_nobody_for_days():
    server = Server()
    client = enabled_registrar(server)
    assert client.due(10 * DAY)
    assert not client.due(10 * DAY)
    assert client.due(9 * DAY)


def test_an_internal_error_is_tried_again_later():
    server = Server()
    client = enabled_registrar(server)
    enrolment = refuse(client, server, Answer.INTERNAL_ERROR)
    assert (enrolment.status, enrolment.error) == (Status.DUE, Answer.INTERNAL_ERROR)
    assert client.due(4.9) == []
    before = client.next_at
    refuse(client, server, Answer.INTERNAL_ERROR, now=before)
    assert client.next_at - before >= 10
    exchange(client, server, now=client.next_at)
    assert status(client) is Status.REGISTERED


@pytest.mark.parametrize("error", [Answer.MALFORMED_MESSAGE, Answer.UNSUPPORTED_TOKEN_TYPE])
def test_refused_registration_waits_for_a_change(error):
    server = Server()
    client = enabled_registrar(server)
    enrolment = refuse(client, server, error)
    assert (enrolment.status, enrolment.error) == (Status.REFUSED, error)
    assert client.due(1e9) == []
    client.set_options(Options(block_mentions=True))
    assert exchange(client, server) == 1
    assert status(client) is Status.REGISTERED


@pytest.mark.parametrize("error", [Answer.INTERNAL_ERROR, Answer.MALFORMED_MESSAGE])
def test_trying_again_does_not_wait(error):
    server = Server()
    client = enabled_registrar(server)
    for _ in range(5):
        refuse(client, server, error, now=client.next_at)
        if status(client) is Status.REFUSED:
            break
    version = client.state.enrolments[0].version
    client.try_again(0.0)
    assert exchange(client, server) == 1
    assert status(client) is Status.REGISTERED
    # What may have arrived goes again as it was; what was refused does not.
    assert server.version == version + (error is Answer.MALFORMED_MESSAGE)
    client.try_again(1.0)
    assert client.due(DAY) == []


@pytest.mark.parametrize("server_version", [1, 2, 77, 2**40, MOST_VERSION - 1])
def test_the_version_moves_beyond_the_servers(server_version):
    server = Server()
    server.version = server_version
    client = enabled_registrar(server)
    now, count = 0.0, 0
    while status(client) is not Status.REGISTERED:
        count += exchange(client, server, now)
        now = client.next_at
    assert server.version > server_version
    assert count <= 66
    assert [message.version for message in server.messages] == sorted({message.version for message in server.messages})


def test_a_server_without_room_above_is_given_up():
    server = Server()
    server.version = MOST_VERSION
    client = enabled_registrar(server)
    now = 0.0
    while not client.has_settled():
        now = client.next_at
        exchange(client, server, now)
    assert status(client) is Status.REFUSED
    assert len(server.messages) <= 66


def test_a_server_that_gave_up_gets_a_higher_version():
    server = Server()
    client = enabled_registrar(server)
    [asking] = client.due(0.0)
    server.take(asking.sealed)  # the answer is lost, and the device token dies
    client = registrar(REGISTRATION.load(REGISTRATION.dump(client.state)))
    [again] = client.due(DAY)
    assert (again.server, again.sealed) == (asking.server, asking.sealed)
    client.take_answer(server.public_key, server.take(again.sealed), DAY)
    assert exchange(client, server, DAY) == 1
    assert (status(client), server.version) == (Status.REGISTERED, 3)


def test_options_leave_as_hashes():
    server = Server()
    options = Options(
        blocked_chats=("b",), blocked_users=(OTHER.public_key,), muted_chats=("m",), mention_chats=("w",), enabled=False
    )
    registered_registrar(server, options)
    blocked = (registration.shake256_64(b"b"), OTHER.public_key.author_hash)
    assert server.registration.blocked_chat_list == blocked
    assert server.registration.muted_chat_list == (registration.shake256_64(b"m"),)
    assert server.registration.allowed_mentions_chat_list == (registration.shake256_64(b"w"),)
    assert not server.registration.enabled


def test_disabling_unregisters_and_ends_the_token():
    server = Server()
    client = registered_registrar(server)
    token = client.state.access_token
    client.disable()
    assert client.state.access_token == ""
    assert exchange(client, server) == 1
    assert server.messages[-1].unregister
    assert (server.registration, server.version, status(client)) == (None, 2, Status.UNREGISTERED)
    client.enable(PHONE)
    client.set_servers([server.public_key])
    exchange(client, server)
    assert (server.version, server.registration.access_token == token) == (3, False)


def test_only_a_server_that_was_asked_is_left():
    first, second, never = Server(), Server(), Server()
    client = registered_registrar(first)
    client.set_servers([second.public_key, never.public_key])
    client.set_servers([second.public_key])
    servers = {each.public_key: each for each in (first, second, never)}
    for asking in client.due(0):
        client.take_answer(asking.server, servers[asking.server].take(asking.sealed), 0)
    assert first.messages[-1].unregister
    assert never.messages == []
    assert {each.server: each.status for each in client.state.enrolments} == {
        first.public_key: Status.UNREGISTERED,
        second.public_key: Status.REGISTERED,
        never.public_key: Status.UNREGISTERED,
    }
    assert [info.server_key for info in client.infos()] == [second.public_key.compressed]


@pytest.mark.parametrize("error", Answer)
def test_a_server_s_error_survives_a_restart(error):
    server = Server()
    client = enabled_registrar(server)
    [asking] = client.due(0)
    client.take_answer(server.public_key, replace(server.take(asking.sealed), error=error), 0)
    assert client.state.enrolments[0].error is error
    assert REGISTRATION.load(REGISTRATION.dump(client.state)) == client.state


def test_no_secret_is_shown():
    lists = {"blocked_chats": ("a chat",), "muted_chats": ("a chat",), "mention_chats": ("a chat",)}
    client = registered_registrar(
        Server(), Options(contacts=(CONTACT.public_key,), blocked_users=(OTHER.public_key,), **lists)
    )
    text = repr(client.state) + repr(client.infos()) + repr(client.due(0))
    assert client.state.access_token not in text
    assert "phone" not in text
    assert "a chat" not in text
    assert not [key for key in (CONTACT, OTHER) if str(key.public_key)[:10] in text]


class Machine(RuleBasedStateMachine):
    """Whatever is changed, lost and restarted: in the end all servers have the same, and it is the latest."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        self.random = Random(seed)
        self.servers = {server.public_key: server for server in (Server() for _ in range(3))}
        self.client = registrar()
        self.now = 0.0
        self.answers = []

    @rule(which=st.sets(st.integers(0, 2)), device=st.sampled_from([PHONE, TABLET]))
    def enable(self, which, device):
        self.client.enable(device)
        self.client.set_servers([list(self.servers)[index] for index in which])

    @rule(contacts_only=st.booleans(), contacts=st.sampled_from([(), BOTH, BOTH[:1]]), muted=st.booleans())
    def change(self, contacts_only, contacts, muted):
        self.client.set_options(
            Options(contacts_only=contacts_only, contacts=contacts, muted_chats=("c",) if muted else ())
        )

    @rule()
    def disable(self):
        self.client.disable()

    @rule(seconds=st.floats(0, 5000), lose=st.booleans(), lose_answer=st.booleans())
    def send(self, seconds, lose, lose_answer):
        self.now += seconds
        for asking in self.client.due(self.now):
            if not lose:
                answer = asking.server, self.servers[asking.server].take(asking.sealed)
                if not lose_answer:
                    self.answers.append(answer)

    @rule(days=st.floats(0, 20))
    def sleep(self, days):
        self.now += days * DAY

    @rule(fail=st.booleans())
    def answer(self, fail):
        self.random.shuffle(self.answers)
        for signer, response in self.answers:
            failed = replace(response, error=Answer.INTERNAL_ERROR) if fail else response
            self.client.take_answer(signer, failed, self.now)
        self.answers.clear()

    @rule()
    def restart(self):
        state = REGISTRATION.load(REGISTRATION.dump(self.client.state))
        assert state == self.client.state
        self.client = registrar(state)

    @invariant()
    def what_is_new_has_a_greater_version(self):
        for server in getattr(self, "servers", {}).values():
            by_version = {}
            for message in server.messages:
                by_version.setdefault(message.version, message.SerializeToString())
                assert by_version[message.version] == message.SerializeToString()

    def teardown(self):
        if not hasattr(self, "servers"):
            return
        while not self.client.has_settled():
            self.now = max(self.now, self.client.next_at)
            for asking in self.client.due(self.now):
                self.client.take_answer(asking.server, self.servers[asking.server].take(asking.sealed), self.now)
        state = self.client.state
        expected_servers = {each.server for each in state.enrolments if each.wanted} if state.device else set()
        for key, server in self.servers.items():
            if key in expected_servers:
                assert server.registration.device_token == state.device.device_token
                assert server.registration.access_token == state.access_token
                assert server.registration.allow_from_contacts_only == state.options.contacts_only
                assert (
                    len(server.registration.allowed_key_list)
                    == len(state.options.contacts) * state.options.contacts_only
                )
                assert len(server.registration.muted_chat_list) == len(state.options.muted_chats)
            else:
                assert server.registration is None
        assert {PublicKey(info.server_key) for info in self.client.infos()} == expected_servers


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_dead_server_delays_no_other():
    wrong, right = Server(), Server()
    client = enabled_registrar(wrong)
    client.due(0.0)  # which nobody hears
    client.set_servers([right.public_key])
    for asking in client.due(0.0):
        if asking.server == right.public_key:
            client.take_answer(asking.server, right.take(asking.sealed), 0.0)
    assert client.has_settled([right.public_key])
    assert not client.has_settled([wrong.public_key])
    assert not client.has_settled()

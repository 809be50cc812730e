"""The sending client: which server is asked for what, when, and what its answers do."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.client.rules.acquaintances import Way
from wakupush.client.rules.sending import ANSWER_SECONDS, MOST_ROUNDS, Content, Result, Sending, TargetDevice
from wakupush.model.failures import Answer
from wakupush.model.notifications import NotificationType
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.request import Report, RequestResponse

ALICE, BOB, EVE = (PrivateKey.generate().public_key for _ in range(3))
SERVERS = tuple(PrivateKey.generate().public_key for _ in range(3))
MESSAGE_ID = bytes(32)
CONTENT = Content(type=NotificationType.MESSAGE, chat_id=b"c", author=b"a")


TOKEN = "token"


def way(server=SERVERS[0], token=TOKEN, installation="phone"):
    return Way(installation_id=installation, server=server, access_token=token, version=1, learned_at=0.0)


def target(*servers, user=ALICE, installation="phone"):
    return TargetDevice(user, installation, CONTENT, [way(server, installation=installation) for server in servers])


def sending(*targets):
    return Sending(MESSAGE_ID, targets, random=Random(1))


def report(error=None, user=ALICE, installation="phone"):
    return Report(user.key_hash, installation, error)


def answer(work, asking, *reports, signer=None, message_id=MESSAGE_ID, now=0.0):
    return work.take_answer(asking, signer or asking.server, RequestResponse(message_id, reports), now)


def test_each_server_gets_one_request():
    work = sending(
        target(SERVERS[0]), target(SERVERS[1], user=BOB), target(SERVERS[0], user=BOB, installation="tablet")
    )
    requests = {asking.server: [item.installation_id for item in asking.request.items] for asking in work.due(0)}
    assert requests == {SERVERS[0]: ["phone", "tablet"], SERVERS[1]: ["phone"]}
    assert work.due(0) == []


def test_many_devices_take_several_requests():
    work = sending(*(target(SERVERS[0], installation=str(number)) for number in range(250)))
    assert [len(asking.request.items) for asking in work.due(0)] == [100, 100, 50]


def test_success_ends_it():
    work = sending(target(*SERVERS))
    [asking] = work.due(0)
    assert answer(work, asking, report()) == []
    assert work.is_done
    assert work.targets[0].result is Result.ACCEPTED
    assert work.due(math.inf) == []


def test_next_server_is_asked_after_three_seconds():
    work = sending(target(*SERVERS))
    [first] = work.due(0)
    work.note_sent(first, 2.0)  # a light client took its time
    assert work.next_at >= 2.0 + 3.0
    assert work.due(work.next_at - 0.001) == []
    [second] = work.due(work.next_at)
    assert (first.server, second.server) == SERVERS[:2]


def test_a_late_answer_counts_and_stops_the_others():
    work = sending(target(*SERVERS))
    [first] = work.due(0)
    [_second] = work.due(ANSWER_SECONDS)
    answer(work, first, report(), now=ANSWER_SECONDS + 1)
    assert work.is_done
    assert work.due(1e9) == []


def test_silent_servers_are_retried_then_given_up():
    work = sending(target(*SERVERS[:2]))
    now, servers, rounds = 0.0, [], []
    while not work.is_done:
        for asking in work.due(now):
            servers.append(asking.server)
            if asking.server == SERVERS[1]:
                rounds.append(work.next_at - now)
        now = max(now, work.next_at)
    assert servers == list(SERVERS[:2]) * MOST_ROUNDS
    assert rounds[0] >= 4
    assert rounds[1] >= 8
    assert work.targets[0].result is Result.FAILED


@pytest.mark.parametrize(
    "wrong",
    [
        {"signer": EVE},
        {"signer": SERVERS[1]},
        {"message_id": b"another"},
        {"reports": [report(user=BOB)]},
        {"reports": [report(installation="other")]},
        {"reports": []},
    ],
    ids=["stranger", "other server", "other message", "other user", "other device", "empty"],
)
def test_an_answer_that_is_none_changes_nothing(wrong):
    work = sending(target(*SERVERS))
    [asking] = work.due(0)
    reports = wrong.pop("reports", [report()])
    before = work.next_at
    assert answer(work, asking, *reports, **wrong) == []
    assert (work.is_done, work.next_at) == (False, before)


def test_a_failure_leads_to_the_next_server_at_once():
    work = sending(target(*SERVERS[:2]))
    [first] = work.due(0)
    answer(work, first, report(Answer.INTERNAL_ERROR), now=1)
    [second] = work.due(1)
    assert second.server == SERVERS[1]
    answer(work, second, report(Answer.INTERNAL_ERROR), now=1.5)
    assert work.due(1.5) == []
    [third] = work.due(work.next_at)
    assert third.server == SERVERS[0]


def test_answer_before_the_publish_ends_counts():
    work = sending(target(*SERVERS[:2]))
    [first] = work.due(0)
    answer(work, first, report(Answer.INTERNAL_ERROR), now=1)
    work.note_sent(first, 5)
    [second] = work.due(5)
    assert second.server == SERVERS[1]


def test_a_late_failure_does_not_hurry_the_next_server():
    work = sending(target(*SERVERS))
    [first] = work.due(0)
    [_second] = work.due(ANSWER_SECONDS)
    before = work.next_at
    for error in (Answer.INTERNAL_ERROR, Answer.NOT_REGISTERED):
        answer(work, first, report(error), now=ANSWER_SECONDS + 0.1)
        assert work.next_at == before


def test_not_registered_at_any_server():
    work = sending(target(*SERVERS[:2]))
    for server in SERVERS[:2]:
        [asking] = work.due(0)
        assert asking.server == server
        [useless] = answer(work, asking, report(Answer.NOT_REGISTERED))
        assert (useless.server, useless.access_token, useless.is_wrong) == (server, TOKEN, False)
    assert work.targets[0].result is Result.NOT_REGISTERED


def test_a_wrong_token_is_asked_for_once_more():
    work = sending(target(SERVERS[0]))
    [asking] = work.due(0)
    [wrong] = answer(work, asking, report(Answer.WRONG_TOKEN))
    assert (wrong.user, wrong.server, wrong.access_token, wrong.is_wrong) == (ALICE, SERVERS[0], "token", True)
    assert work.due(1e9) == []
    work.refresh(ALICE, "phone", [way(token="new")], 5.0)
    [again] = work.due(5.0)
    assert [item.access_token for item in again.request.items] == ["new"]
    assert len(answer(work, again, report(Answer.WRONG_TOKEN))) == 1
    assert work.targets[0].result is Result.WRONG_TOKEN


def test_a_late_answer_does_not_end_the_search_for_a_token():
    work = sending(target(*SERVERS[:2]))
    [first] = work.due(0)
    [second] = work.due(ANSWER_SECONDS)
    answer(work, second, report(Answer.WRONG_TOKEN), now=ANSWER_SECONDS)
    answer(work, first, report(Answer.WRONG_TOKEN), now=ANSWER_SECONDS + 0.2)
    work.refresh(ALICE, "phone", [way(SERVERS[1], token="new")], 5.0)
    [again] = work.due(5.0)
    answer(work, again, report(), now=6.0)
    assert work.targets[0].result is Result.ACCEPTED


def test_a_wrong_token_leads_to_the_other_servers():
    work = sending(target(*SERVERS[:2]))
    [asking] = work.due(0)
    answer(work, asking, report(Answer.WRONG_TOKEN))
    work.refresh(ALICE, "phone", [], 5.0)
    [other] = work.due(5.0)
    assert other.server == SERVERS[1]
    answer(work, other, report())
    assert work.targets[0].result is Result.ACCEPTED


def test_a_device_without_ways_is_done():
    work = sending(target())
    assert work.is_done
    assert work.targets[0].result is Result.WRONG_TOKEN


def test_no_token_is_shown():
    work = sending(target(*SERVERS))
    [asking] = work.due(0)
    wrong = answer(work, asking, report(Answer.WRONG_TOKEN))
    assert "'token'" not in repr((asking, wrong, work.targets))


ERRORS = st.sampled_from([None, Answer.INTERNAL_ERROR, Answer.NOT_REGISTERED, Answer.WRONG_TOKEN, "silent"])


@given(st.lists(st.tuples(ERRORS, st.booleans(), st.floats(0, 10)), max_size=40), st.integers(1, 3))
def test_sending_ends_and_never_hurries_silent_servers(script, servers):
    """No server is asked while another may still answer: only its own word, or three seconds, lead to the next."""
    work = sending(target(*SERVERS[:servers]))
    now, request_count, open_since, late = 0.0, 0, None, []
    script = iter(script)
    while not work.is_done:
        for asking in work.due(now):
            assert open_since is None or now - open_since >= 3
            request_count += 1
            open_since = now
            error, is_late, seconds = next(script, ("silent", False, 0.0))
            if error == "silent":
                continue
            late.append((now + (20 if is_late else seconds / 10), asking, error))
        late_answers = sorted(
            (each for each in late if each[0] <= max(now, min(work.next_at, now + 30))), key=lambda each: each[0]
        )
        if late_answers:
            late.remove(late_answers[0])
            now = max(now, late_answers[0][0])
            is_last = late_answers[0][1].server == work.targets[0].last_way.server
            for wrong in answer(work, late_answers[0][1], report(late_answers[0][2]), now=now):
                work.refresh(wrong.user, wrong.installation_id, [way(wrong.server, "new")], now)
            if is_last:
                open_since = None
        else:
            now = max(now, work.next_at)
    assert request_count <= servers * MOST_ROUNDS + 3

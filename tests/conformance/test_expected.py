"""What is expected of sets of vectors that differ from ours: of 2026, or with contact requests."""

import json
from pathlib import Path

import pytest

from conformance.expected import BY_DEVIATION, EXACT, Scenario, flat

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.fixture
def of_set(tmp_path):
    """Return what gives the expectation of a step in a set of its own."""

    def of_set(name, *, profile=None, **changes):
        """Take the name of a step of `requests`, what profile.txt has, and fields of the first item that differ."""
        raw = json.loads((VECTORS / "scenario_requests.json").read_text())
        [position] = [number for number, step in enumerate(raw["steps"]) if step["name"] == name]
        item = raw["steps"][position]["send"][0]["application"]["fields"]["requests"][0]
        item.update(changes)
        raw["steps"][position]["gorush_posts"] = [
            {"answered_status": 200, "json": {"notifications": [as_in_2024(raw, item)]}}
        ]
        (tmp_path / "scenario_requests.json").write_text(json.dumps(raw))
        if profile:
            (tmp_path / "profile.txt").write_text(f"{profile}\n")
        return Scenario(tmp_path / "scenario_requests.json").expected[position]

    return of_set


def as_in_2024(raw, item):
    """Return the mention that the reference of 2024 posts for an item of a type that it does not know."""
    device = next(
        content["registration"]["fields"]
        for step in raw["steps"]
        for message in step["send"]
        if (content := message["application"]).get("registration", {}).get("fields")
        and content["registration"]["fields"]["installation_id"] == item["installation_id"]
    )
    return {
        "tokens": [device["device_token"]],
        "platform": device["token_type"],
        "message": "Someone mentioned you",
        "topic": device["apn_topic"],
        "data": {
            "encryptedMessage": f"0x{item['message']}",
            "chatId": f"0x{item['chat_id']}",
            "publicKey": f"0x{item['public_key']}",
        },
    }


def test_a_contact_request_of_2024_by_a_blocked_author(of_set):
    expected = of_set("join_blocked_author", type=4)
    assert (expected.verdict, expected.pushes) == (BY_DEVIATION, [])


def test_a_contact_request_of_2024_in_a_muted_chat(of_set):
    expected = of_set("join_muted_chat", type=4)
    assert expected.verdict == EXACT
    assert [json.loads(push)["message"] for push in expected.pushes] == ["Someone mentioned you"]


def test_posts_of_the_2026_reference_are_unchanged(of_set):
    expected = of_set("join_blocked_author", profile="status", type=4)
    assert (expected.verdict, len(expected.pushes)) == (EXACT, 1)


def test_unrecorded_fields_follow_the_sets_year(tmp_path):
    for year, profile in ((2024, None), (2026, "status")):
        path = tmp_path / str(year) / "scenario_requests.json"
        path.parent.mkdir()
        path.write_bytes((VECTORS / path.name).read_bytes())
        if profile:
            (path.parent / "profile.txt").write_text(profile)
    [old], [new] = (
        next(each.pushes for each in Scenario(path).expected if each.trouble == "unreachable")
        for path in sorted(tmp_path.glob("*/scenario_requests.json"))
    )
    pushed = json.loads(old)
    assert pushed["message"] == "You have a new message"
    pushed |= {"message": "New message in Messenger", "content_available": True, "sound": "default"}
    pushed |= {"priority": "high", "push_type": "alert"}
    pushed["data"]["deepLink"] = "status-app://chats"
    assert json.loads(new) == pushed
    assert flat(pushed) == new


def test_a_profile_that_does_not_exist(of_set):
    with pytest.raises(AssertionError, match=r"profile\.txt names french"):
        of_set("join_blocked_author", profile="french")

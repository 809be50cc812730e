"""Durations and times of commands."""

import pytest

from wakupush.runtime.durations import MOST_DAYS, parse_duration, parse_since

NOW = 1_795_000_000.0


@pytest.mark.parametrize(
    ("text", "ago"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("0s", 0), ("2026-11-18T00:00Z", None)]
)
def test_since(text, ago):
    expected = 1_794_960_000 if ago is None else NOW - ago
    assert parse_since(text, NOW) == expected


def test_a_time_is_utc_unless_it_says_otherwise():
    assert parse_since("2026-11-18T00:00", NOW) == parse_since("2026-11-18T01:00+01:00", NOW)


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2h3m", "yesterday", "\u0661h", "10001d", "999999999d"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match="Invalid isoformat"):
        parse_since(text, NOW)


def test_the_longest_duration():
    assert parse_duration(f"{MOST_DAYS}d") == MOST_DAYS * 86_400

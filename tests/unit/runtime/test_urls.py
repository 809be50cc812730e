"""What is a URL, and what of an address may be printed."""

import pytest

from wakupush.devnet.dev import without_secrets
from wakupush.runtime.urls import is_http, without_user


@pytest.mark.parametrize("url", ["http://waku:8645", "https://user:secret@waku.example/rest/", "http://[::1]:1"])
def test_urls(url):
    assert is_http(url)
    assert "secret" not in without_user(url)


@pytest.mark.parametrize(
    "url", ["", "waku:8645", "127.0.0.1:8645", "http://", "http://x:y", "http://x:0", "http://[", "ftp://x"]
)
def test_what_is_none(url):
    assert not is_http(url)


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("http://user:p@ss@waku:8645/rest?a=b", "http://waku:8645/rest?a=b"),
        ("redis://:secret@127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("rediss://cache", "rediss://cache"),
    ],
)
def test_a_url_without_its_user(url, printed):
    assert without_user(url) == printed


def test_a_connection_string_without_its_secrets():
    for dsn, parts in (
        ("postgresql://u:secret@h:5432/d", {"user=u", "dbname=d", "host=h", "port=5432"}),
        ("host=/run dbname=d password=secret", {"host=/run", "dbname=d"}),
        ("postgresql://h/d?sslkey=k&sslpassword=secret", {"host=h", "dbname=d", "sslkey=k"}),
    ):
        assert set(without_secrets(dsn).split()) == parts

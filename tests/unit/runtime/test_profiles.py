"""Profiles in the file of settings: what they inherit, and what is wrong with them."""

import json

import pytest
from typer.testing import CliRunner

from wakupush.cli import app
from wakupush.cli.client import NotificationKind
from wakupush.model.notifications import NotificationType
from wakupush.runtime.settings import SettingsError, load_settings

TYPES = ["message", "mention", "join_request", "contact_request"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("WAKUPUSH_CONFIG", str(path))
    return path


def test_types_have_the_labels_of_notifications(file):
    file.write_text("[profiles.mine]\ntext = 'x'\n" + "".join(f"[profiles.mine.{name}]\n" for name in TYPES))
    assert [kind.label for kind in NotificationType] == TYPES == list(NotificationKind)
    load_settings()


def test_a_type_inherits_from_its_profile(file):
    file.write_text("""
[gorush]
dialect = "mine"
[profiles.mine]
data = ["chat_id"]
text = "New message"
title = "Mine"
sound = "default"
badge = true
[profiles.mine.mention]
text_key = "mentioned"
text_args = ["x"]
sound = ""
badge = false
[profiles.mine.join_request]
title_key = "joining"
""")
    settings = load_settings()
    mine = settings.profiles["mine"]
    assert (settings.gorush.dialect, mine.data) == ("mine", ("chat_id",))
    message, mention, joining = mine.message, mine.mention, mine.join_request
    assert (message.text, message.title, message.sound, message.badge) == ("New message", "Mine", "default", True)
    assert (mention.text, mention.text_key, mention.text_args) == ("", "mentioned", ("x",))
    assert (mention.title, mention.sound, mention.badge) == ("Mine", "", False)
    assert (joining.title, joining.title_key, joining.text) == ("", "joining", "New message")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "text = 'x'\nsonud = 's'",
            "unknown settings in {file}: profiles.mine.sonud (did you mean profiles.mine.sound?)",
        ),
        (
            "text = 'x'\nmention = {{badges = true}}",
            "unknown settings in {file}: profiles.mine.mention.badges (did you mean profiles.mine.mention.badge?)",
        ),
        ("text = 'x'\nmention = {{data = []}}", "unknown settings in {file}: profiles.mine.mention.data"),
        (
            "text = 'x'\nmention = {{sound = 1}}",
            "profiles.mine.mention.sound in {file}: Input should be a valid string",
        ),
        ("text = 'x'\nmention = 'secret-value'", "profiles.mine.mention in {file}: a table is expected"),
        ("text = 'x'\nbadge = 1", "profiles.mine.badge in {file}: Input should be a valid boolean"),
        ("text = 'x'\nexpiration = 'true'", "profiles.mine.expiration in {file}: Input should be a valid boolean"),
        (
            "text = 'x'\npriority = 'secret-value'",
            "profiles.mine.priority in {file}: Input should be 'high' or 'normal'",
        ),
        ("text = 'x'\ndata = ['secret-value']", "profiles.mine.data in {file}: Input should be 'chat_id', 'message'"),
        ("text = 'x'\ndata_only = true", "profiles.mine.data_only in {file}: Input should be a valid tuple"),
        ("text = 'x'\ndata_only = ['web']", "profiles.mine.data_only in {file}: Input should be 'ios' or 'android'"),
        (
            "text = 'x'\ndeep_link = 'chats'",
            "profiles.mine.deep_link in {file}: a link is expected such as example-app:",
        ),
        ("text = 'x'\ntext_key = 'k'", "profiles.mine.text_key in {file}: there is text already"),
        ("text = 'x'\ntext_args = ['a']", "profiles.mine.text_args in {file}: text_key is missing beside it"),
        (
            "text = 'x'\nmention = {{title_args = ['a']}}",
            "profiles.mine.mention.title_args in {file}: title_key is missing",
        ),
        ("title = 'x'", "profiles.mine.message in {file}: text or text_key is missing, here and in the profile"),
        ("text = 'x'\nmention = {{text = ''}}", "profiles.mine.mention in {file}: text or text_key is missing"),
        ("text = 'x'\nmention = {{title = '" + "x" * 2048 + "'}}", "profiles.mine.mention in {file}: its texts take"),
        ("text = 'x'\ntitle = '" + "<" * 400 + "'", "profiles.mine.message in {file}: its texts take"),
    ],
)
def test_errors_name_the_key_and_the_file(file, text, error):
    file.write_text("[profiles.mine]\n" + text.format())
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert error.format(file=file) in str(raised.value)
    assert "secret-value" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("profiles = 1", "profiles in {file}: a table is expected"),
        ("profiles = true", "profiles in {file}: a table is expected"),
        ("[profiles]\nmine = 1", "profiles.mine in {file}: a table is expected"),
        ("[profiles.spec]\ntext = 'x'", "profiles.spec in {file}: this profile is built in"),
        ("[profiles.Mine]\ntext = 'x'", "profiles.Mine in {file}: String should match pattern"),
        (
            "[profiles.mine]\ntext = 'x'\n[gorush]\ndialect = 'mien'",
            "a profile is expected: spec, status, status-2024, both, mine",
        ),
    ],
)
def test_names_of_profiles(file, text, error):
    file.write_text(text)
    with pytest.raises(SettingsError) as raised:
        load_settings()
    assert error.format(file=file) in str(raised.value)


def test_an_app_that_shows_all_needs_no_text(file):
    file.write_text("[profiles.mine]\ndata_only = ['ios', 'android']")
    assert load_settings().profiles["mine"].message.text == ""


def test_no_variable_has_profiles(monkeypatch):
    monkeypatch.setenv("WAKUPUSH_PROFILES", "{}")
    with pytest.raises(SettingsError, match="unknown settings: WAKUPUSH_PROFILES"):
        load_settings()


# wakupush profile


def test_the_dry_run_prints_every_notification(file):
    file.write_text("[gorush]\ndialect = 'mine'\n[profiles.mine]\ntext = 'New'\nmention = {title = 'Mentioned'}")
    result = CliRunner().invoke(app, ["profile"])
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert list(printed) == TYPES
    for kind, platforms in printed.items():
        assert {name: each["message"] for name, each in platforms.items()} == {"ios": "New", "android": "New"}
        assert {each.get("title") for each in platforms.values()} == {"Mentioned" if kind == "mention" else None}
    assert printed["message"]["ios"]["tokens"] == ["a device token"]


def test_the_dry_run_takes_a_name(file):
    file.write_text("[profiles.mine]\ntext = 'New'")
    printed = json.loads(CliRunner().invoke(app, ["profile", "status"]).stdout)
    assert printed["contact_request"]["ios"]["data"]["deepLink"] == "status-app://contact-requests"
    result = CliRunner().invoke(app, ["profile", "mien"])
    assert result.exit_code == 2
    assert "there is no such profile; there are spec, status, status-2024, both, mine" in result.stderr

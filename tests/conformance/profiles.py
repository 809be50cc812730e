"""What the reference of a set of vectors posts to gorush besides tokens, topic and contents."""

from pathlib import Path

OF_2024 = "status-2024"
#: By profile, then by the type of notification.
TEXTS = {
    OF_2024: {
        1: "You have a new message",
        2: "Someone mentioned you",
        3: "Someone requested to join a community you are an admin of",
        4: "Someone mentioned you",
    },
    "status": {
        1: "New message in Messenger",
        2: "New mention or reply in Communities",
        3: "Someone requested to join a community you are an admin of",
        4: "Someone sent you a contact request",
    },
}
IOS_FIELDS = {
    OF_2024: {},
    "status": {"content_available": True, "sound": "default", "priority": "high", "push_type": "alert"},
}
IOS_LINKS = {
    OF_2024: {},
    "status": {
        1: "status-app://chats",
        2: "status-app://ac",
        3: "status-app://ac",
        4: "status-app://contact-requests",
    },
}


def of(directory: Path) -> str:
    """Return the profile of a set of vectors: what its profile.txt names, without one that of 2024."""
    file = directory / "profile.txt"
    profile = file.read_text().strip() if file.exists() else OF_2024
    assert profile in TEXTS, f"{file} names {profile}, which is none of {', '.join(TEXTS)}"
    return profile

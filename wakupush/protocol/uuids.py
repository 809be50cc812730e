"""uuids as the reference reads them: by the rules of Go's google/uuid, which are neither RFC 9562's nor Python's."""

import re

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_PLAIN = re.compile(rb"[0-9a-f]{32}", re.IGNORECASE)


def is_uuid(text: str) -> bool:
    """Return whether a reference client or server accepts a text as a uuid.

    It accepts 36 characters with dashes, also after ``urn:uuid:`` or between any two single characters, and 32 hex
    digits.
    """
    data = text.encode(errors="surrogatepass")
    match len(data):
        case 32:
            return _PLAIN.fullmatch(data) is not None
        case 36:
            return _UUID.fullmatch(data) is not None
        case 38:
            return _UUID.fullmatch(data[1:37]) is not None
        case 45:
            return data[:9].lower() == b"urn:uuid:" and _UUID.fullmatch(data[9:]) is not None
        case _:
            return False

"""Files of private keys."""

import resource

import pytest

from wakupush.runtime import keyfile
from wakupush.runtime.keyfile import KeyFileError


def test_a_full_disk_leaves_no_empty_key_file(tmp_path):
    file = tmp_path / "key"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # a write then fails as on a full disk
    try:
        with pytest.raises(KeyFileError, match="key cannot be written: File too large"):
            keyfile.write(file, bytes(32))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not file.exists()
    keyfile.write(file, bytes(32))

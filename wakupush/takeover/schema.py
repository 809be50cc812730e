"""The tables of the reference server (status-go, protocol/pushnotificationserver/migrations), and one of our own.

An export also has our table, with what the reference has no place for, so that importing it gives the same rows.
"""

from typing import Final

REGISTRATIONS: Final = "push_notification_server_registrations"
REQUESTS: Final = "push_notification_server_notifications"
IDENTITY: Final = "push_notification_server_identity"
#: Table of an export: rows as we store them, see `wakupush.takeover.exporting`.
OURS: Final = "wakupush_registrations"

#: The columns that have to be there, by table.
COLUMNS: Final = {
    REGISTRATIONS: {"public_key", "installation_id", "version", "registration"},
    REQUESTS: {"id"},
    IDENTITY: {"private_key", "synthetic_id"},
}

#: Versions of ours are text: they go to 2^64 - 1, integers of SQLite to 2^63 - 1.
CREATE: Final = f"""
CREATE TABLE {REGISTRATIONS} (
  public_key BLOB NOT NULL,
  installation_id VARCHAR NOT NULL,
  version INT NOT NULL,
  registration BLOB,
  UNIQUE(public_key, installation_id) ON CONFLICT REPLACE
);
CREATE TABLE {IDENTITY} (
  private_key BLOB NOT NULL,
  synthetic_id INT NOT NULL DEFAULT 0,
  UNIQUE(synthetic_id)
);
CREATE TABLE {REQUESTS} (
  id BLOB NOT NULL,
  UNIQUE(id)
);
CREATE INDEX idx_{REGISTRATIONS}_public_key ON {REGISTRATIONS}(public_key);
CREATE INDEX idx_{REGISTRATIONS}_public_key_installation_id ON {REGISTRATIONS}(public_key, installation_id);
CREATE TABLE {OURS} (
  public_key BLOB NOT NULL,
  installation_hash BLOB NOT NULL,
  version TEXT NOT NULL,
  registered INT NOT NULL,
  request_digest BLOB NOT NULL,
  blocked_chat_digests BLOB,
  muted_chat_digests BLOB,
  allowed_mentions_chat_digests BLOB,
  PRIMARY KEY(public_key, installation_hash)
) WITHOUT ROWID;
"""

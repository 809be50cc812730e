"""What `wakupush dev` hands to its processes, and what it prints."""

import json

from rich.console import Console

from wakupush.devnet import dev
from wakupush.devnet.stack import External, Stack

EXTERNAL = External(
    waku_url="http://user:planted@waku:8645?a=b",
    gorush_url="http://user:planted@gorush:8088",
    postgres_dsn="postgresql://u:planted@h/d?sslpassword=planted",
    redis_url="redis://h:6379/1?password=planted",
)


def test_the_stores_of_the_shell_are_not_walked(tmp_path):
    stores = {
        "WAKUPUSH_RECONCILE__STORES": '["https://production.example"]',
        "WAKUPUSH_RECONCILE__STORE_PEERS": '["/dns4/production.example/tcp/443/wss/p2p/16Uiu2"]',
        "WAKUPUSH_RECONCILE__WINDOW": "3600",
    }
    environment = Stack(tmp_path, external=EXTERNAL, defaults=stores).environment
    assert json.loads(environment["WAKUPUSH_RECONCILE__STORES"]) == [EXTERNAL.waku_url]
    assert json.loads(environment["WAKUPUSH_RECONCILE__STORE_PEERS"]) == []
    assert environment["WAKUPUSH_RECONCILE__WINDOW"] == "3600"


def test_the_database_of_the_shell_is_not_migrated(tmp_path):
    defaults = {"WAKUPUSH_POSTGRES__DIRECT_DSN": "postgresql://owner@production.example/wakupush"}
    environment = Stack(tmp_path, external=EXTERNAL, defaults=defaults).environment
    assert environment["WAKUPUSH_POSTGRES__DIRECT_DSN"] == environment["WAKUPUSH_POSTGRES__DSN"]


def test_no_secret_of_an_address_is_printed(tmp_path, capsys):
    dev._show(Console(soft_wrap=True), Stack(tmp_path, external=EXTERNAL), EXTERNAL)
    output = capsys.readouterr().out
    assert "planted" not in output
    assert "redis://h:6379/1\n" in output

"""The commands, as an operator calls them; what is missing is told in one line."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pyspark
import pytest
from typer.testing import CliRunner

from support.pipeline.happenings import FOR_EVER
from wakupush.cli import app
from wakupush.pipeline import session
from wakupush.postgres.backlog import pipeline_runs


@pytest.fixture
def call(monkeypatch, tmp_path, spark):
    """Call a command in this process and Spark session; return its exit code and what it printed."""
    for name in ("warehouse", "keys", "reports"):
        monkeypatch.setenv(f"WAKUPUSH_PIPELINE__{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("WAKUPUSH_PIPELINE__PSEUDONYM_DAYS", str(FOR_EVER))
    monkeypatch.setattr(type(spark), "stop", lambda _: None)

    def call(*arguments, expect=0):
        result = CliRunner().invoke(app, ["pipeline", *arguments])
        assert result.exit_code == expect, result.output
        return result.output

    return call


def test_each_job_says_what_it_did(call, monkeypatch, dsn, tmp_path):
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", dsn)

    def facts(*arguments):
        return json.loads(call(*arguments, "--json").splitlines()[-1])

    made_up = facts("synthesize", "--messages", "120", "--days", "3", "--into", "postgres")
    assert made_up == {"events": made_up["events"], "into": "postgres"}
    assert facts("export") == {"rows": made_up["events"], "steps": 1, "forgotten_keys": 0}
    assert facts("tidy").keys() == {"compacted", "deleted", "forgotten", "without"}
    [first, last] = [(datetime.now(UTC) - timedelta(days=ago)).date().isoformat() for ago in (3, 1)]
    page = tmp_path / "reports" / f"{first}_{last}" / "report.html"
    output = call("report", "--from", first)
    assert "3 of 3 days" in output
    assert str(page) in output
    output = facts("report", "--from", first)
    assert output == {"first": first, "last": last, "events": output["events"], "is_partial": True, "page": str(page)}
    assert 0 < output["events"] <= made_up["events"]
    assert set(facts("capacity", "--from", first)["values"]["components"]) <= {"registration", "query", "dispatch"}
    output = call("capacity", "--users", "2", "--gorush", "200")
    assert "2 times the users" in output
    assert "components:" in output
    with psycopg.connect(dsn) as connection:
        runs = {run.job: run.seconds for run in pipeline_runs(connection)}
    assert runs.keys() == {"synthesize", "export", "tidy", "report", "capacity"}
    assert all(0 < seconds < 600 for seconds in runs.values())
    with psycopg.connect(dsn) as connection:
        connection.execute("DROP TABLE pipeline_runs")
    assert "tidy ended well, but its time is not noted" in call("tidy")


def test_the_operators_spark_decides_where_a_job_runs(tmp_path):
    (tmp_path / "job.py").write_text("import runpy\n\nrunpy.run_module('wakupush', run_name='__main__')\n")
    events = tmp_path / "log"
    events.mkdir()
    (tmp_path / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir file:{events}\nspark.eventLog.rolling.enabled false\n"
        "spark.eventLog.compress false\nspark.sql.session.timeZone Asia/Tokyo\n"
    )
    environment = os.environ | {
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "WAKUPUSH_PIPELINE__CATALOG": json.dumps(
            {"type": "hadoop", "jdbc.password": "planted", "s3.secret-access-key": "planted", "credential": "planted"}
        ),
        "WAKUPUSH_PIPELINE__WAREHOUSE": str(tmp_path / "lake"),
        "WAKUPUSH_PIPELINE__KEYS": str(tmp_path / "keys"),
        "WAKUPUSH_PIPELINE__MASTER": "local[3]",
        "WAKUPUSH_PIPELINE__MEMORY": "800m",
    }
    job = ["pipeline", "synthesize", "--messages", "20", "--days", "1", "--json"]
    submit = [
        *(str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"),
        *("--driver-memory", "700m", "--packages", f"{session.JDBC_DRIVER},{session.ICEBERG}"),
        *("--exclude-packages", session.NEEDLESS, str(tmp_path / "job.py")),
    ]
    for number, start in enumerate((submit, [sys.executable, "-m", "wakupush"]), start=1):
        result = subprocess.run(
            [*start, *job], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout.splitlines()[-1])["into"] == "lake"
        [log] = set(events.iterdir())
        lines = map(json.loads, log.read_text().splitlines())
        [spark_event] = [line for line in lines if line["Event"] == "SparkListenerEnvironmentUpdate"]
        options = spark_event["Spark Properties"]
        assert (options["spark.master"], options["spark.driver.memory"]) == {
            1: ("local[1]", "700m"),
            2: ("local[3]", "800m"),
        }[number]
        assert '"spark.sql.catalog.lake.credential":"*********(redacted)"' in log.read_text()
        assert "planted" not in log.read_text()
        # What the numbers depend on is not an operator's choice.
        assert options["spark.sql.session.timeZone"] == "UTC"
        log.unlink()
        shutil.rmtree(tmp_path / "lake")


def test_what_is_wrong_is_told(call):
    assert "--from is after --to" in call("report", "--from", "2026-11-02", "--to", "2026-11-01", expect=2)
    assert "is no day" in call("report", "--from", "yesterday", expect=2)
    assert "--cost is NAME=MILLISECONDS" in call("capacity", "--cost", "all=1", expect=2)
    for command in ("export", "tidy", "report", "capacity"):
        assert "does not answer" in call(command, expect=2)
    assert "s3://BUCKET/PATH is expected" in call("export", "--warehouse", "s3a://bucket", expect=2)


def test_without_java_and_without_pyspark(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "there is no Java: install Java 17" in session.missing_parts()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    assert "is not Java 17 or newer" in session.missing_parts()
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    assert session.missing_parts() == "pyspark is not installed: install wakupush[pipeline]"


@pytest.mark.parametrize(
    "command",
    ["export", "tidy", "report", "capacity", "fetch-archive", "rebuild", "warm-topics", "synthesize"],
)
def test_a_command_without_the_extra_says_so(command):
    program = f"""
import sys
sys.modules |= dict.fromkeys(["pyspark", "pyspark.sql", "py4j", "pyarrow", "pandas"])
sys.argv = ["wakupush", "pipeline", {command!r}]
from wakupush.cli import main
main()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(r"wakupush: \w+ is not installed: install wakupush\[pipeline\]\n", result.stderr)


def test_a_command_without_java_says_so(call, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    # What is wrong without Java is said before.
    assert "--cost is NAME=MILLISECONDS" in call("capacity", "--cost", "all=1", expect=2)
    for command in ("export", "tidy", "report", "capacity", "synthesize"):
        assert call(command, expect=2).strip() == (
            "wakupush: there is no Java: install Java 17, or name its folder in JAVA_HOME"
        )


def test_tasks_are_told_while_spark_is_at_them(spark):
    steps = []
    with session.telling_tasks(spark, lambda count, total: steps.append((count, total)), every=0.01):
        spark.range(0, 2_000_000, 1, 8).selectExpr("sum(hash(id))").collect()
    assert len(steps) > 2
    assert all(0 <= count <= total for count, total in steps)
    of_the_first_stage = [count for count, total in steps if total == 8]
    assert of_the_first_stage == sorted(of_the_first_stage)
    assert len(set(of_the_first_stage)) > 2


def test_only_pinned_jars_are_taken(spark, tmp_path, monkeypatch):
    resolved = spark.conf.get("spark.jars")
    assert len(resolved.split(",")) == 2
    session._check_jars(resolved)
    (tmp_path / "other.jar").write_bytes(b"another")
    with pytest.raises(session.PipelineError, match=r"other\.jar is no jar that was pinned"):
        session._check_jars(f"{resolved},file://{tmp_path}/other.jar")
    monkeypatch.setattr(session, "JARS", {})
    with pytest.raises(session.PipelineError, match="is no jar that was pinned"):
        session._check_jars(resolved)


def test_jars_come_from_the_folder(make_settings, tmp_path):
    here, there = (make_settings(jars=tmp_path, warehouse=where).pipeline for where in (str(tmp_path), "s3://bucket"))
    names = [f"{name}-{version}.jar" for _, name, version in (each.split(":") for each in session.JARS)]
    for name in names[:2]:
        (tmp_path / name).touch()
    assert session.jars(here)["spark.jars"] == f"{tmp_path / names[0]},{tmp_path / names[1]}"
    with pytest.raises(session.PipelineError, match=f"WAKUPUSH_PIPELINE__JARS: there is no file .*{names[2]}"):
        session.jars(there)


@pytest.mark.long
def test_ctrl_c_ends_a_job_without_a_traceback(tmp_path):
    environment = os.environ | {
        "WAKUPUSH_PIPELINE__WAREHOUSE": str(tmp_path / "lake"),
        "WAKUPUSH_PIPELINE__CATALOG": '{"type": "hadoop"}',
        "WAKUPUSH_PIPELINE__KEYS": str(tmp_path / "keys"),
    }
    command = [sys.executable, "-m", "wakupush", "pipeline", "synthesize", "--messages", "3000000"]
    # As a terminal does, the signal goes to Java, too.
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if re.match("[1-9].* of .* tasks", line):
                break
        os.killpg(process.pid, signal.SIGINT)
        lines += process.stdout
        assert process.wait(300) == 130
    assert not re.search(r"Traceback|^\s+at ", "".join(lines), re.MULTILINE)

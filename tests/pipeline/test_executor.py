"""The command of an executor, of the variables that Spark gives its pod."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from wakupush.pipeline.executor import command

VARIABLES = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@export.wakupush-spark.push.svc:7078",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.3",
    "SPARK_EXECUTOR_POD_NAME": "wakupush-pipeline-1-exec-2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number}" for number in (10, 0, 2)},
}


def test_it_has_what_spark_asks_for():
    java_command = command(VARIABLES)
    before, after = java_command[: java_command.index("-cp")], java_command[java_command.index("-cp") + 1 :]
    assert [word for word in before if "number" in word] == ["-Dnumber=0", "-Dnumber=2", "-Dnumber=10"]
    assert {"-Xms1024m", "-Xmx1024m"} <= set(before)
    classes, backend, *words = after
    assert classes == str(Path(pyspark.__file__).parent / "jars" / "*")
    assert backend.endswith("KubernetesExecutorBackend")
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options["--driver-url"] == VARIABLES["SPARK_DRIVER_URL"]
    assert options["--hostname"] == options["--bind-address"] == "10.1.2.3"
    assert (options["--executor-id"], options["--cores"], options["--podName"]) == (
        "2",
        "1",
        "wakupush-pipeline-1-exec-2",
    )


def test_classes_of_its_own_come_first():
    java_command = command(VARIABLES | {"SPARK_CLASSPATH": "/jars/*"})
    assert java_command[java_command.index("-cp") + 1].startswith("/jars/*:")


@pytest.mark.parametrize("name", ["SPARK_DRIVER_URL", "SPARK_EXECUTOR_MEMORY"])
def test_by_hand_it_says_what_it_is(name):
    variables = {key: value for key, value in VARIABLES.items() if key != name}
    process = subprocess.run(
        [sys.executable, "-m", "wakupush.pipeline.executor"], env=variables, capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr.strip() == f"{name} is not set: Spark starts this in the pods of executors"

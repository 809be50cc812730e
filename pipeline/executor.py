"""A Spark executor in a pod, by ``python -m wakupush.pipeline.executor``: the chart's pod template calls it.

Spark gives an executor's pod environment variables, and leaves it to the image to start Java with them.
"""

import os
import sys
from collections.abc import Mapping
from importlib import resources
from typing import Final

from wakupush.pipeline.session import java_path
from wakupush.runtime import core_dumps

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
#: The variables that Spark sets, by the options of `_BACKEND` that they become.
_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--bind-address": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY: Final = "SPARK_EXECUTOR_MEMORY"
_JAVA_OPTION: Final = "SPARK_JAVA_OPT_"


def command(environment: Mapping[str, str]) -> list[str]:
    """Return the command of an executor, Java's arguments without the program.

    Raises:
        KeyError: a variable that Spark sets is missing.
    """
    settings_by_number = {
        int(name.removeprefix(_JAVA_OPTION)): value
        for name, value in environment.items()
        if name.startswith(_JAVA_OPTION)
    }
    classes = [environment.get("SPARK_CLASSPATH", ""), str(resources.files("pyspark") / "jars" / "*")]
    return [
        f"-Dlog4j2.configurationFile=file:{resources.files('wakupush.pipeline') / 'log4j2.properties'}",
        *(value for _, value in sorted(settings_by_number.items())),
        f"-Xms{environment[_MEMORY]}",
        f"-Xmx{environment[_MEMORY]}",
        "-cp",
        os.pathsep.join(filter(None, classes)),
        _BACKEND,
        *(word for option, name in _OPTIONS.items() for word in (option, environment[name])),
    ]


def main() -> None:
    """Become the executor; end with a message where Spark did not start this."""
    core_dumps.forbid()
    try:
        arguments = command(os.environ)
    except KeyError as error:
        sys.exit(f"{error.args[0]} is not set: Spark starts this in the pods of executors")
    java = java_path()
    if java is None:
        sys.exit("there is no Java: name its folder in JAVA_HOME")
    os.execv(java, [java, *arguments])  # noqa: S606 - Spark's own command, in a pod that it made


if __name__ == "__main__":
    main()

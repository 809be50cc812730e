"""The exceptions of a failed job of Spark, which depend on where it fails."""

from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)

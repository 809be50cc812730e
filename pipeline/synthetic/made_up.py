"""Writing made-up events into a lake or a database that has no others."""

from datetime import timedelta
from typing import Final

from pyspark.sql import SparkSession

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake.catalog import alone
from wakupush.pipeline.lake.export import for_lake, keys_of
from wakupush.pipeline.lake.lake import Lake, LakeMark
from wakupush.pipeline.lake.pseudonyms import today
from wakupush.pipeline.postgres import connect, jdbc_options
from wakupush.pipeline.synthetic import synthesize
from wakupush.pipeline.synthetic.synthesize import Plan
from wakupush.postgres import exporting, maintenance
from wakupush.runtime.settings import Settings

#: Made-up events that are written in one transaction.
ROWS_AT_ONCE: Final = 1000


def into_lake(spark: SparkSession, settings: Settings, plan: Plan) -> int:
    """Write made-up events into the lake, in one commit; return their number.

    Raises:
        PipelineError: the lake has events of a server.
    """
    keys = keys_of(settings)
    lake = Lake.of(spark, settings)
    with alone(settings):
        lake.prepare()
        state = lake.state()
        if state.snapshot is not None and (state.mark is None or state.mark.source != synthesize.WORKER):
            raise PipelineError("the lake has events of a server: made-up ones do not belong there")
        days = [plan.first_day + timedelta(days=offset) for offset in range(plan.days + 2)]
        events = for_lake(
            synthesize.events(lake.spark, plan),
            keys.of(days, today(), lake.sizes()),
            settings.pipeline.pseudonym_days,
        )
        mark = LakeMark(source=synthesize.WORKER, timeline=0, transaction=0, last_event=None)
        rows, _ = lake.append(events, state, mark)
        return rows


def into_postgres(spark: SparkSession, settings: Settings, plan: Plan) -> int:
    """Write made-up events into the table that workers write to; return how many events it then has.

    Raises:
        PipelineError: it has events of a server, or the text says what else to do.
    """
    with connect(settings.postgres) as connection:
        if exporting.has_others_than(connection, synthesize.WORKER):
            raise PipelineError("the database has events of a server: made-up ones do not belong there")
        for offset in range(0, plan.days + 1, maintenance.DAYS_AHEAD):
            maintenance.create_partitions(connection, plan.first_day + timedelta(days=offset))
        events = synthesize.events(spark, plan)
        options = jdbc_options(connection) | {"dbtable": "delivery_events", "batchsize": str(ROWS_AT_ONCE)}
        # Without a level each batch is a transaction, as a worker's batch is: the export takes whole transactions.
        events.write.format("jdbc").options(**options, isolationLevel="NONE").mode("append").save()
        return exporting.count(connection, 0, (1 << 63) - 1)

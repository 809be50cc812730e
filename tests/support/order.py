"""Which tests run where under pytest-xdist: those of the pipeline on one worker, which begins with them."""

import pytest

#: They share a Spark session, which takes longer to start and stop than most of them.
TOGETHER = "tests/pipeline/"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest piece of work first, so that no worker ends with it while the others have nothing to do."""
    items.sort(key=lambda item: not item.nodeid.startswith(TOGETHER))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - where it is installed

    class Scheduling(LoadFileScheduling):
        """A file is run by one worker, and so is the pipeline."""

        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)

    return Scheduling(config, log)

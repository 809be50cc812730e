"""Which tests run where under pytest-xdist: folders that share a server run on one worker, which begins with them."""

import pytest

#: Folders whose tests share a Spark session, or a server: it takes longer to start and stop than most of them.
TOGETHER = ("tests/pipeline/", "tests/e2e/one_server/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest pieces of work first, so that no worker ends with one while the others have nothing to do."""
    items.sort(key=lambda item: not item.nodeid.startswith(TOGETHER))


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - where it is installed

    class Scheduling(LoadFileScheduling):
        """A file is run by one worker, and so is each of those folders."""

        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    return Scheduling(config, log)

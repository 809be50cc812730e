"""No core dump of a process: it would hold the server's key, and what the process has opened."""

import ctypes
import resource
import sys
from typing import Final

#: Of Linux' ``prctl``, see prctl(2).
_PR_SET_DUMPABLE: Final = 4


def forbid() -> None:
    """Let the system write no core dump of this process and those that it forks.

    A limit of zero forbids files, and processes inherit it. A handler of core dumps does not obey it, so Linux is told
    that the process is not to be dumped at all; it then also hides its memory from other processes of its user.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

from __future__ import annotations

import signal

pytest_plugins = ["support.leftovers", "support.order"]

# Whoever starts the tests in the background lets them ignore SIGINT, and what they start inherits that: tests of Ctrl-C
# would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

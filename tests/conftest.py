from __future__ import annotations

import signal

pytest_plugins = ["tests.servers"]

# A shell starts what it puts in the background with SIGINT ignored, and children inherit that. The tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

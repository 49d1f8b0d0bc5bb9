"""The user's coroutine, executed without I/O: its commands out, their completions in."""

"""Pure decisions: values in, values out.

Nothing in here reads a clock, draws a random number, waits, logs or touches a store. Instants arrive as
arguments (`now_ms`, by the store's clock); delays leave as durations. Every decision that is to last is a
`Change` (see `changes`), which a store commits if its guard still holds.
"""

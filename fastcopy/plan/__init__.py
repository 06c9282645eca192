"""What to do, decided without doing anything: pure functions and plain state machines.

Nothing here awaits, reads a clock, opens a file or knows a socket; tests/test_layers.py holds it to that.
"""

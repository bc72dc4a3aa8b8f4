"""Marks the requests of an inference program for Divvy's gate.

    import divvy_gate

    with divvy_gate.request():
        answer = model(batch).cpu()

A request that waited in a queue says when it arrived, by time.monotonic():

    with divvy_gate.request(arrival=job.arrived_at):
        ...

Without marks the gate takes a request to last from the first launch after a
pause to the end of the wait for it. Everything here does nothing in a program
that runs without the gate. A request begins and ends in the same thread, and
requests do not nest.
"""

import contextlib
import ctypes

__all__ = ["begin", "end", "request", "is_loaded"]


def _find(name, argument_types):
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    function.argtypes = argument_types
    function.restype = None
    return function


_begin = _find("divvy_request_begin", [ctypes.c_uint64])
_end = _find("divvy_request_end", [])


def is_loaded():
    """Whether this program runs under the gate."""
    return _begin is not None and _end is not None


def begin(arrival=None):
    """A request begins, which arrived at `arrival` (time.monotonic(); None: now)."""
    if _begin is not None:
        _begin(0 if arrival is None else max(0, int(arrival * 1e9)))


def end():
    """The request that this thread began is done."""
    if _end is not None:
        _end()


@contextlib.contextmanager
def request(arrival=None):
    """One request, from entering the block to leaving it, also by an exception."""
    begin(arrival)
    try:
        yield
    finally:
        end()

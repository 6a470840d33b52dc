"""Hostile input: whatever bytes come, from whichever side, the promises hold.

`targets.py` says what is promised of what is read (an answer, a stream, a record, a report, a
configuration, …), each as a function of plain bytes; `wire.py` does the same over sockets, with a
whole daemon between a hostile caller and a hostile upstream. Inputs are the recorded cases and the
corpus in `tests/data/fuzz`, changed by `mutate.py`.

The tests run a bounded number of inputs. `python -m tests.fuzz` runs for as long as it is told to,
guided by coverage where atheris is installed.
"""

"""Layers with control flow, lists and recurrence; `make_flow.py` saves them, the tests convert what it saved."""

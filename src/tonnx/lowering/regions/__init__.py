"""Branches and loops whose course only the run knows: one engine for the If and Loop of all front ends.

`lists` are lists whose length is known at run time; `forms` say how a value crosses the border of a graph, and what two
paths have in common; `emit` makes the nodes; `settle` finds by trial what a loop carries.
"""

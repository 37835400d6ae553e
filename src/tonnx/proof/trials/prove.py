"""Prove that a file computes what a model computes: on the example and at other sizes of what is dynamic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from tonnx.errors import CaptureError, VerificationFailed, told_as
from tonnx.proof.judge import checked, open_session
from tonnx.proof.session import PATIENCE
from tonnx.proof.subject import Arrays, Reference, Subject, copies
from tonnx.proof.trials.budget import Budget
from tonnx.proof.trials.inputs import symbol_sizes
from tonnx.proof.trials.judging import Judge
from tonnx.proof.trials.plan import Inputs, Plan
from tonnx.proof.trials.ranking import Ranked
from tonnx.proof.trials.rounding import Quantised
from tonnx.proof.trials.values import LOUD
from tonnx.proof.trials.verification import Trial, Verification

_TWICE = 256 << 20
"""Bytes up to which a file is loaded a second time."""


def prove(
    model: str | Path | bytes,
    subject: Subject,
    *,
    check: bool = True,
    seed: int = 0,
    sizes: bool | int = True,
    random: Collection[str] = (),
    values: bool | int = False,
    optimised: bool = True,
    lowered: Mapping[str, str] | None = None,
    thresholds: Sequence[float] = (),
    budget: Budget | None = None,
) -> Verification:
    """Check the file, then compare it with ``subject`` on its example, and with ``sizes`` at other sizes.

    With ``values`` also on other draws, zeros, negative and large numbers. For both a number says how many. Without,
    only as long as an output stays below the tolerance, where anything would pass.

    A file that is not valid or does not load raises InvalidModel; one that computes something else is a Verification
    which is not ``ok``. Without a reference the file is only run. Outputs in ``random`` depend on random numbers of the
    file's; where the model's own ones change them too, only their shapes and dtypes are compared. ``optimised=False``
    lets ONNX Runtime run every node as it stands. Outputs in ``lowered`` are held to the dtype that is named there.
    With a ``budget``, values around ``thresholds`` and other draws are tried as far as it goes; never left out are the
    example, one other size of every dynamic dimension, and one other draw.
    """
    subject = _within_restriction(subject, seed)
    plan = Plan(subject, seed)
    began, used = time.perf_counter(), time.process_time()
    expected = None if subject.reference is None else _run_once(subject.reference, subject.example)
    patience = max(PATIENCE, 100 * (time.perf_counter() - began))
    remarks = checked(model) if check else []
    quantised = Quantised(model) if subject.by_default else None
    session = open_session(model, optimised=optimised)
    judge = Judge(subject, session, patience, random, quantised, lowered or {}, Ranked(model))
    trials = [judge.example(plan.dims, expected)]
    failing = None if trials[0].ok else subject.example
    budget = budget or Budget(math.inf, draws=0)
    budget.begin(time.process_time() - used)

    def note(trial: Trial, inputs: Arrays) -> None:
        nonlocal failing
        trials.append(trial)
        failing = inputs if failing is None and not trial.ok else failing

    def try_all(group: Iterable[Inputs], needed: Callable[[Sequence[Trial]], bool] = lambda trials: False) -> None:
        """Those that are needed, given the trials so far, and others as far as there is time."""
        for case in group:
            if needed(trials) or budget.allows():
                trial = judge.invented(case, expected)
                if trial.skipped is None or not case.is_extreme:
                    note(trial, case.arrays)

    if sizes:
        try_all(plan.suspected_sizes(), needed=lambda trials: True)
    try_all(plan.other_sizes(sizes), needed=plan.lacks_a_size)
    if sizes is True and subject.reference is not None:
        try_all(plan.single_sizes())
    try_all(plan.other_values(values), needed=lambda trials: values is True or plan.lacks_a_draw(trials))
    if optimised and expected is not None and _may_load_again(model, budget):
        note(judge.as_it_stands(model, plan.dims, expected), subject.example)
    try_all(plan.more_values(thresholds, budget.draws))
    quiet = (case for case in plan.other_values(not values) if case.label not in LOUD)  # half precision overflows there
    try_all(takewhile(lambda _: _is_faint(trials), quiet))
    trials, tied = judge.together(trials, plan, expected) if sizes else (trials, [])
    if all(trial.skipped is not None for trial in trials):
        raise VerificationFailed("ONNX Runtime does not run the model", why=trials[0].skipped)
    restricted = "" if subject.restriction is None else f"right where {subject.restriction}"
    told = tuple(filter(None, (*remarks, session.remark, restricted, *tied, *budget.told())))
    return Verification(tuple(trials), session.brought_up_by, failing=failing, remarks=told)


def _within_restriction(subject: Subject, seed: int) -> Subject:
    """The subject with an example that the file's operators take."""
    dims = symbol_sizes(subject.example, subject.dynamic)
    if subject.restriction is None or subject.restriction.allows(dims):
        return subject
    nearest = subject.restriction.nearest(dims)
    return replace(subject, example=Plan(subject, seed).drawn(nearest[0], 0)) if nearest else subject


def _may_load_again(model: str | Path | bytes, budget: Budget) -> bool:
    """Whether there is time, and memory for the weights a second time."""
    from tonnx.proof.parts import nbytes

    return budget.draws > 0 and nbytes(model) <= _TWICE and budget.allows()


def _is_faint(trials: Sequence[Trial]) -> bool:
    """Whether some output was nowhere above the absolute tolerance: other values may move it."""
    return any(output.faint for output in Verification(tuple(trials)).per_output())


def _run_once(reference: Reference, example: Arrays) -> Sequence[np.ndarray]:
    """Before the file is blamed for anything: does the model itself run on its example?"""
    with told_as(CaptureError, "the model itself fails on the example"):
        return reference(copies(example))

"""Each operator of PyTorch's database as a test: ``pytest -m opinfo tests/opinfo -k conv2d``."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.opinfo


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The database takes seconds to import, so it is imported only where it is asked for."""
    if "opinfo" not in (metafunc.config.option.markexpr or "") or "not opinfo" in metafunc.config.option.markexpr:
        metafunc.parametrize("name", [])
        return
    from tests.opinfo.oracle import operators

    metafunc.parametrize("name", list(operators()))


def test_operator(name: str) -> None:
    """No sample gives a wrong file or an error other than a refusal."""
    from tests.opinfo.oracle import run
    from tests.opinfo.suite import failures

    outcomes = run(name)
    if outcomes.left_out:
        pytest.skip(outcomes.left_out)
    failed = failures([outcomes])
    assert not failed, "\n".join(f"{one.dtype} [{one.sample}]: {one.verdict.reason}" for one in failed)

"""What is not installed, or too old, is no fault of tonnx's.

The core needs no framework: where one is not installed, the tests that import it are skipped and all others run. What
older versions refuse stands in ``tests/versions/refused.py``.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec

import pytest

from tests.versions import refused

MISSING = [name for name in ("torch", "paddle") if find_spec(name) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    refused.mark(items)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    for name in MISSING:
        if report.failed and f"No module named '{name}'" in str(report.longrepr):
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: needs {name}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name in MISSING:
            pytest.skip(f"needs {error.name}")
        raise
    except Exception as error:
        if refused.is_too_new(error) and (installed := refused.without_newest_opset()):
            pytest.skip(f"{refused.TOO_OLD}: {installed}")
        raise

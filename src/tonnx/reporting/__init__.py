"""The report page. The package is not called report, so that `tonnx.report` can be the function."""

from __future__ import annotations

from tonnx.reporting.page import report

__all__ = ["report"]

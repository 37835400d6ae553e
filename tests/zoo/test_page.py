"""The page of a zoo in a real Chromium: sorted, searched, and shown without an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.reporting.test_report import _errors, _open, browser  # noqa: F401 (a fixture)
from tonnx.zoo.manifest import Job
from tonnx.zoo.page import write_page
from tonnx.zoo.store import Store
from tonnx.zoo.work import empty_row

SIZES = {"alpha": 300, "beta": 2000, "gamma": None, "delta": 40}


def test_the_page_sorts_and_searches(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    jobs, rows = [], []
    for name, size in SIZES.items():
        jobs.append(job := Job(f"{name}_opset11", name, "a.onnx", 11, ("retarget", "a.onnx"), str(tmp_path)))
        row = empty_row(job, "ok" if size else "crashed", "it ended by <b>SIGABRT</b></script>")
        rows.append(row | {"size": size, "files": [f"{name}_opset11.html"]} | ({"error": None} if size else {}))
    jobs.append(Job("omega_opset17", "omega", "a.onnx", 17, ("retarget", "a.onnx"), str(tmp_path)))
    write_page(Store(str(tmp_path)), rows, jobs)
    _open(browser, tmp_path / "index.html")

    def first_column(table: str) -> list[str]:
        script = f"return [...document.querySelectorAll('#{table} tbody tr')].map((row) => row.cells[0].textContent)"
        return list(browser.execute_script(script))

    assert first_column("jobs") == [*SIZES, "omega"] == first_column("cells")
    for expected in (["delta", "alpha", "beta", "gamma", "omega"], ["beta", "alpha", "delta", "gamma", "omega"]):
        browser.find_element("css selector", "#jobs th[data-column=size]").click()
        assert first_column("jobs") == expected, "what has no figure comes last"
    browser.execute_script("document.getElementById('figure').value = 'size'")
    browser.find_element("css selector", "#cells th[data-column='opset 11']").click()
    assert first_column("cells")[:3] == ["delta", "alpha", "beta"]
    assert browser.find_element("css selector", "#cells td.ok a").get_attribute("href").endswith("delta_opset11.html")
    browser.find_element("id", "search").send_keys("am")
    assert first_column("jobs") == ["gamma"]
    told = browser.find_element("css selector", "#jobs td.told").text
    assert "<b>SIGABRT</b></script>" in told and "tonnx retarget a.onnx" in told
    assert not _errors(browser)

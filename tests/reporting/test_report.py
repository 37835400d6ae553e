"""The report page: what is in it, and, in a real Chromium, that it works."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import tonnx
from tests.versions.refused import without_newest_opset
from tonnx.cli import main
from tonnx.ir.target import CANON

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update
    --disable-sync --no-first-run --window-size=1400,1000"""


class Block(torch.nn.Module):
    """A convolution and what follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
        self.act = torch.nn.GELU()

    def forward(self, x):
        return x + self.act(self.conv(x))


class Net(torch.nn.Module):
    """Blocks, and a branch by the value."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(Block(), Block())

    def forward(self, x):
        x = self.blocks(x)
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: -y, (x,))


def _data(page: Path) -> dict[str, Any]:
    html = page.read_text(encoding="utf-8")
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', html, re.DOTALL)
    assert text is not None
    return json.loads(text[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it."""
    made = tmp_path_factory.mktemp("report")
    torch.manual_seed(0)
    net = Net().eval()
    x = torch.rand(2, 3, 8, 8)
    tonnx.export(net, (x,), made / "net.onnx", dynamic_axes={"x": {0: "batch"}})
    result = tonnx.verify(made / "net.onnx", net, (x,), locate=True)
    bench = tonnx.bench(made / "net.onnx", seconds=0.02, memory=False)
    tonnx.report(
        made / "net.onnx",
        made / "net.html",
        timings={"capture": 1.0, "lower": 0.1},
        verification=result.verification,
        differences=result.differences,
        bench=bench,
    )
    return made


def test_the_page_needs_no_network(folder: Path) -> None:
    text = (folder / "net.html").read_text()
    data = re.search(r'<script id="data".*?</script>', text, re.DOTALL)
    assert data is not None
    rest = text.replace(data[0], "").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|<link[^>]+href=\"(?!data:)|src=", rest)


def test_nodes_carry_module_source_time_and_difference(folder: Path) -> None:
    data = _data(folder / "net.html")
    graph, texts = data["graph"], data["graph"]["texts"]
    (conv, _) = (i for i, node in enumerate(graph["nodes"]) if texts[node[0]] == "Conv")
    node = graph["nodes"][conv]
    assert [texts[part] for part in node[5]] == ["blocks", "0", "conv"]
    assert texts[node[6]].startswith("aten.conv2d") and "test_report.py" not in texts[node[6]]
    assert data["times"][conv] > 0 and len(data["times"]) == len(graph["nodes"])
    assert data["differences"][conv][2] is True
    inside = [node for node in graph["nodes"] if any("branch" in texts[part] for part in node[5])]
    assert inside, "bodies of If are part of the graph"
    assert data["verification"]["ok"] and data["bench"]["svg"].startswith("<svg")


def _chain(path: Path, opset: int, count: int = 3) -> None:
    """A model without names of nodes and without metadata."""
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4), path)


@pytest.mark.parametrize("opset", [5, 7, 26])
def test_files_from_elsewhere(opset: int, tmp_path: Path) -> None:
    _chain(tmp_path / "chain.onnx", opset)
    data = _data(tonnx.report(tmp_path / "chain.onnx"))
    assert data["file"]["opset"] == opset
    assert data["times"] is None if opset == CANON and without_newest_opset() else len(data["times"]) == 3
    assert data["stages"][-1]["operators"] == {"Relu": 3}


def test_external_data_counts_as_weights(tmp_path: Path) -> None:
    linear = torch.nn.Linear(64, 64)
    tonnx.export(linear, (torch.rand(1, 64),), tmp_path / "big.onnx", external_data=True)
    data = _data(tonnx.report(tmp_path / "big.onnx"))
    assert data["file"]["weights"] == (64 * 64 + 64) * 4
    assert data["weights"][0]["shape"] in ([64, 64],) and data["file"]["size"] > 64 * 64 * 4


def test_text_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>"
    _chain(tmp_path / "a.onnx", 18)
    model = onnx.load(tmp_path / "a.onnx")
    model.graph.node[0].name = name
    onnx.save(model, tmp_path / "a.onnx")
    page = tonnx.report(tmp_path / "a.onnx")
    assert name not in page.read_text() and _data(page)["graph"]["nodes"][0][1] == name


@pytest.mark.parametrize(("content", "message"), [(b"not a model", "is not an ONNX model"), (None, "there is no file")])
def test_bad_files(content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    assert main(["report", str(path), "-o", str(tmp_path / "out.html")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.html").exists()


def test_view_writes_a_page(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["view", str(folder / "net.onnx"), "--no-browser", "--no-profile"]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert _data(page)["file"]["name"] == "net.onnx"
    shutil.rmtree(page.parent)


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM or not DRIVER:
        pytest.skip("no chromium and chromedriver here; `make chromium` installs them")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def _open(browser: Any, page: Path) -> None:
    browser.get(page.as_uri())
    assert browser.execute_script("return document.readyState") == "complete"


def _errors(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_browser_opens_searches_and_expands(browser: Any, folder: Path) -> None:
    _open(browser, folder / "net.html")
    assert "net.onnx" in browser.title
    shown = browser.find_element("id", "shown")
    closed = int(shown.text.split()[0])
    twist = browser.find_element("css selector", "#tree .twist")
    twist.click()
    opened = int(shown.text.split()[0])
    assert opened > closed
    search = browser.find_element("id", "search")
    search.send_keys("blocks.1.conv")
    results = browser.find_elements("css selector", "#results li")
    assert results and "1 found" in browser.find_element("id", "found").text
    results[0].click()
    details = browser.find_element("id", "details").text
    assert "Conv" in details and "blocks.1.conv" in details and "kernel_shape" in details and "aten.conv2d" in details
    browser.find_element("id", "all").click()
    assert int(shown.text.split()[0]) > opened
    browser.find_element("id", "none").click()
    browser.find_element("id", "theme").click()
    assert browser.execute_script("return document.documentElement.dataset.theme") in ("dark", "light")
    for name in ("time", "difference"):
        browser.execute_script(
            "const s = document.getElementById('colour'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))",
            name,
        )
    assert _errors(browser) == []


def test_browser_draws_something(browser: Any, folder: Path) -> None:
    _open(browser, folder / "net.html")
    browser.execute_script("document.getElementById('graph').scrollIntoView(); tonnx.view.paint()")
    colours = browser.execute_script(
        "const c = document.getElementById('canvas'), p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"  # noqa: E501
        "const found = new Set(); for (let i = 0; i < p.length; i += 4) found.add(p[i] << 16 | p[i+1] << 8 | p[i+2]);"
        "return found.size"
    )
    assert colours > 10


def test_browser_stays_quick_with_5000_nodes(browser: Any, tmp_path: Path) -> None:
    """Not a timing of the machine: a layout that is not linear would take minutes here."""
    _chain(tmp_path / "long.onnx", 18, 5000)
    page = tonnx.report(tmp_path / "long.onnx", profile=False)
    _open(browser, page)
    milliseconds = browser.execute_script(
        "const t = performance.now(); document.getElementById('all').click();"
        "for (let i = 0; i < 10; i++) { tonnx.view.zoom(0.8, 300, 300); tonnx.view.paint(); }"
        "return performance.now() - t"
    )
    assert "5002 boxes of 5000 nodes" in browser.find_element("id", "shown").text
    assert milliseconds < 15_000
    assert _errors(browser) == []


def _functions(path: Path) -> Path:
    """Two calls of one function that calls another; and two Ifs without names."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    leaky = helper.make_node("LeakyRelu", ["X"], ["Y"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    inner = helper.make_function("my", "Inner", ["X"], ["Y"], [leaky], opsets, ["slope"])
    body = [helper.make_node("Inner", ["X"], ["h"], domain="my", slope=0.5), helper.make_node("Add", ["h", "X"], ["Y"])]
    outer = helper.make_function("my", "Outer", ["X"], ["Y"], body, opsets)
    sides = [
        helper.make_graph(
            [helper.make_node(name, ["b"], ["s"])], name, [], [helper.make_value_info("s", onnx.TypeProto())]
        )
        for name in ("Neg", "Abs")
    ]
    nodes = [
        helper.make_node("Outer", ["x"], ["a"], "first/Outer", domain="my"),
        helper.make_node("Outer", ["a"], ["b"], "second/Outer", domain="my"),
        *(helper.make_node("If", ["c"], [name], then_branch=sides[0], else_branch=sides[1]) for name in ("y", "z")),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xyz"]
    ends.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    graph = helper.make_graph(nodes, "g", [ends[0], ends[3]], ends[1:3])
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=[inner, outer], ir_version=8), path)
    return path


def test_functions_are_shown_where_they_are_called(tmp_path: Path) -> None:
    data = _data(tonnx.report(_functions(tmp_path / "f.onnx")))
    nodes, texts, names = data["graph"]["nodes"], data["graph"]["texts"], data["graph"]["values"]["names"]
    seen = [(texts[n[0]], [texts[part] for part in n[5]], [names[v] for v in n[2]], n[8]) for n in nodes]
    assert seen[:8] == [
        ("my::Outer", ["first"], ["x"], -1),
        ("my::Inner", ["first", "Outer body"], ["x"], 0),
        ("LeakyRelu", ["first", "Outer body", "Inner #1 body"], ["x"], 1),
        ("Add", ["first", "Outer body"], ["h", "x"], 0),
        ("my::Outer", ["second"], ["a"], -1),
        ("my::Inner", ["second", "Outer body"], ["a"], 4),
        ("LeakyRelu", ["second", "Outer body", "Inner #5 body"], ["a"], 5),
        ("Add", ["second", "Outer body"], ["h", "a"], 4),
    ]
    assert nodes[3][2][0] != nodes[7][2][0], "each call has values of its own"
    assert nodes[2][4] == [["alpha", "slope of the call"]]
    assert [texts[n[5][-1]] for n in nodes if n[8] >= 8] == [
        f"If #{number} {side}_branch" for number in (8, 11) for side in ("else", "then")
    ]
    assert all(data["times"][i] > 0 for i in (2, 3, 6, 7)), "timed call by call"
    assert data["stages"][-1]["operators"] == {"my::Outer": 2, "If": 2, "Neg": 2, "Abs": 2}


def test_browser_puts_bodies_between_their_node_and_what_reads_it(browser: Any, tmp_path: Path) -> None:
    _open(browser, tonnx.report(_functions(tmp_path / "f.onnx"), profile=False))
    browser.find_element("id", "all").click()
    rows = browser.execute_script("return tonnx.view.shown.of.map(box => box.y)")
    assert rows[0] < rows[1] < rows[2] < rows[3] < rows[4] < rows[5] < rows[6] < rows[7] < rows[8] < rows[9]
    inside = browser.execute_script(
        "const f = tonnx.view.frames; return f.every(one => !one.outer || (one.top > one.outer.top"
        " && one.bottom < one.outer.bottom && one.left > one.outer.left && one.right < one.outer.right))"
    )
    assert inside, "a frame lies inside of the one around it"
    search = browser.find_element("id", "search")
    search.send_keys("leaky")
    (first, _) = browser.find_elements("css selector", "#results li")
    assert first.text == "LeakyRelu first.Outer body.Inner #1 body #2"
    first.click()
    browser.find_element("id", "deeper").click()
    assert "slope of the call" in browser.find_element("id", "details").text, "what was chosen stays chosen"
    browser.find_element("id", "none").click()
    assert not browser.find_element("id", "details").is_displayed()
    search.clear()
    search.send_keys("nothing of that name")
    assert not browser.find_element("id", "results").is_displayed()
    assert _errors(browser) == []


def test_numbers_are_finite_json(tmp_path: Path) -> None:
    """NaN and infinity in a constant must not end up in the page's JSON."""
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=float("inf")),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=8)
    model.opset_import[0].version = 18
    onnx.save(model, tmp_path / "inf.onnx")
    data = _data(tonnx.report(tmp_path / "inf.onnx", inputs={"x": np.ones(1, np.float32)}))
    assert data["graph"]["nodes"][0][4] == [["value_float", "inf"]]


def _unnamed(path: Path) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3, None]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_dimensions_without_names_are_timed(tmp_path: Path) -> None:
    data = _data(tonnx.report(_unnamed(tmp_path / "a.onnx")))
    assert data["times"] and data["inputs"][0]["type"] == data["outputs"][0]["type"] == "float[?, 3, ?]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--inputs", "z={x}"], "the model has no input 'z'"),
        (["--inputs", "x={nan}"], "the array for x has NaN"),
        (["--size", "height=3"], "the model has no dynamic dimension 'height'"),
    ],
)
def test_options_about_another_model(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    places = {name: tmp_path / f"{name}.npy" for name in ("x", "nan")}
    np.save(places["x"], np.ones((1, 3, 2), np.float32))
    np.save(places["nan"], np.full((1, 3, 2), np.nan, np.float32))
    path = _unnamed(tmp_path / "a.onnx")
    assert main(["report", str(path), *(option.format(**places) for option in options)]) == 1
    assert message in capsys.readouterr().err and not (tmp_path / "a.html").exists()


def test_a_page_about_a_wrong_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Compared with another file: the page names the node, and the command fails."""
    right, wrong = tmp_path / "right.onnx", tmp_path / "wrong.onnx"
    _chain(right, 17)
    model = onnx.load(right)
    model.graph.node[1].op_type = "Abs"
    model.graph.node[0].op_type = "Neg"
    onnx.save(model, wrong)
    assert main(["report", str(wrong), "--against", str(right)]) == 1
    assert "does NOT compute" in capsys.readouterr().out
    assert "first node that differs" in _data(tmp_path / "wrong.html")["located"]


def test_netron_gets_no_broken_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "half.onnx").write_bytes(_unnamed(tmp_path / "a.onnx").read_bytes()[:20])
    assert main(["view", str(tmp_path / "half.onnx"), "--netron", "--no-browser"]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err


def test_netron_says_when_its_port_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("netron")
    path = _unnamed(tmp_path / "a.onnx")
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["view", str(path), "--netron", "--no-browser", "--port", port]) == 1
    assert f"Netron cannot take port {port}" in capsys.readouterr().err

"""Models that go to other processes, and what runs there: Ray itself is tried by ``make test-ray``."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import tonnx
from tonnx.cli import main
from tonnx.ray import Predictor
from tonnx.run.model import Model


def test_a_loaded_model_is_pickled_by_path_and_options(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    model = tonnx.load("mean.onnx", recipe="mean.yaml", threads=1)
    blob = pickle.dumps(model)
    assert len(blob) < 2000, "the weights stay where they are"
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(blob)
    assert isinstance(again, Model) and again.loaded_by == model.loaded_by
    picture = folder / "green.png"
    assert again.predict(picture).data == model.predict(picture).data
    with pytest.raises(TypeError, match=r"tonnx\.load"):
        pickle.dumps(Model(model._session))


def test_a_predictor_takes_columns(folder: Path) -> None:
    x = np.random.default_rng(0).random((5, 3, 16, 16), np.float32)
    ragged = np.empty(5, object)
    ragged[:] = list(x)
    for model in (folder / "mean.onnx", tonnx.load(folder / "mean.onnx")):
        for column in (x, ragged):
            batch = Predictor(model)({"id": np.arange(5), "x": column})
            np.testing.assert_allclose(batch["y"], x.mean((2, 3)), rtol=1e-5)
            assert list(batch["id"]) == [0, 1, 2, 3, 4]


def test_a_predictor_takes_pictures(folder: Path) -> None:
    paths = np.array([str(folder / f"{name}.png") for name in ("red", "green", "red")], object)
    predictor = Predictor(folder / "mean.onnx", recipe=folder / "mean.yaml", pictures="path")
    batch = predictor({"path": paths})
    assert batch["y"].shape == (3, 3) and list(batch["path"]) == list(paths)
    assert ['"green"' in answer.split("}")[0] for answer in batch["answer"]] == [False, True, False]


@pytest.mark.parametrize(
    ("options", "batch", "told"),
    [
        ({}, {"data": np.zeros((1, 3, 16, 16))}, "there is no column for x: float32"),
        ({"pictures": "path"}, None, "the model has no recipe"),
        ({"pictures": "path", "recipe": "mean.yaml"}, {"file": np.zeros(1)}, "there is no column 'path'"),
        ({"threads": 0}, None, "threads must be at least 1"),
    ],
)
def test_what_a_predictor_refuses(options: dict, batch: dict | None, told: str, folder: Path) -> None:
    options = {key: folder / value if key == "recipe" else value for key, value in options.items()}
    with pytest.raises(tonnx.InvalidArgument, match=told):
        Predictor(folder / "mean.onnx", **options)(batch or {})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "ray"], "write a table"),
        (["--actors", "2"], "write a table"),
        (["-o", "a.parquet", "--keep-going"], "has all pictures"),
    ],
)
def test_tables_on_the_command_line(
    words: list[str], told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(folder / "mean.onnx"), str(folder / "red.png"), *words]) == 1
    assert told in capsys.readouterr().err


def test_a_table_of_pictures(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["run", str(folder / "mean.onnx"), f"{folder}/*.png", "--recipe", str(folder / "mean.yaml"), "--batch", "2"]
    target = tmp_path / "out.parquet"
    try:
        from pyarrow import parquet
    except ImportError:
        assert main([*call, "-o", str(target)]) == 1
        assert "pip install pyarrow" in capsys.readouterr().err and not list(tmp_path.iterdir())
        return
    assert main([*call, "-o", str(target)]) == 0
    table = parquet.read_table(target)
    names = sorted(str(path) for path in folder.glob("*.png"))
    assert table["input"].to_pylist() == names and table.column_names == ["input", "y", "answer"]
    model = tonnx.load(folder / "mean.onnx", recipe=folder / "mean.yaml")
    for name, row in zip(names, table["y"].to_pylist(), strict=True):
        np.testing.assert_allclose(row, model.predict(name).outputs["y"], rtol=1e-6)


OURS = """\x1b[36mray::MapWorker()\x1b[39m (pid=1)
  File "run.py", line 1, in run
    raise InvalidArgument(what)
tonnx.errors.InvalidArgument: the input x is too small
  where: p.jpg
  why:   axis 2 is 64

The above exception was the direct cause of the following exception:

ray::MapWorker() (pid=1)
ray.exceptions.UserCodeException: UDF failed to process a data block.
To change retry attempts, configure it."""
OTHERS = "ray::X()\n  File x\nOSError: the disk is full\n\nThe above exception was …\n\nray::X()\nray.exceptions.E: UDF"


def test_an_error_of_a_worker_of_which_ray_kept_the_text() -> None:
    error = tonnx.ray._read_off(OURS)
    assert (error.what, error.where, error.why) == ("the input x is too small", "p.jpg", "axis 2 is 64")
    assert tonnx.ray._read_off(OTHERS).why == "OSError: the disk is full"

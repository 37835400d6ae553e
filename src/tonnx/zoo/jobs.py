"""One job of a zoo: one model at one opset, as a command line."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tonnx.zoo.process import Limits


@dataclass(frozen=True)
class Needs:
    """What a job asks of the machine that it runs on; engines with several machines place it by this."""

    cpus: float = 1
    gpus: float = 0
    resources: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Job:
    """What is to be done; the same job has the same name in every run."""

    name: str
    """Of the job and of its files: ``resnet18_opset11``."""
    title: str
    """The row on the page: the model's name, and what of the matrix it is."""
    source: str
    opset: int | None
    """None: the one that its target likes."""
    words: tuple[str, ...]
    """``tonnx`` and these words do it; where the file goes is added."""
    folder: str
    """Where the manifest is: paths in it start there."""
    limits: Limits = field(default_factory=Limits)
    latency: bool = True
    needs: Needs = field(default_factory=Needs)
    depends: tuple[str, ...] = ()
    """Files and folders that the model reads besides those that can be seen."""

    @property
    def output(self) -> str:
        """The name of what it writes: a file, or the folder of a package."""
        path = Path(self.folder, self.source)
        is_checkpoint = path.is_dir() and ("--task" in self.words or (path / "config.json").is_file())
        return self.name if is_checkpoint else f"{self.name}.onnx"

    @property
    def command(self) -> str:
        """What to type in the manifest's folder to do it by hand."""
        return shlex.join(["tonnx", *self.words, "-o", self.output])

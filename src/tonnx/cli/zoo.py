"""Export every model of a manifest, each in a process of its own, and leave files, a line of JSON a job, and one page.

A job is done again only if its model, its options, tonnx or a framework has changed. One that crashes, hangs or uses
up the memory is a row, not the end. A run that was stopped goes on where it was.

Examples:
  tonnx zoo models.toml -o zoo/
  tonnx zoo models.toml -o zoo/ --only 'resnet*' --failed --jobs 4
  tonnx zoo models.toml -o zoo/ --against last-week/
  tonnx zoo models.toml -o s3://bucket/zoo --engine ray --address ray://head:10001

A manifest:
  [defaults]
  opset = [11, 17]
  memory = "8GB"

  [[model]]
  model = "nets.py:resnet18"
  input = "x:float32[batch,3,224,224]"
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.cli.console import Console, Report
from tonnx.errors import InvalidArgument

if TYPE_CHECKING:
    from tonnx.zoo.compare import Regression
    from tonnx.zoo.run import Outcome, Step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", help="a TOML file; docs/zoo.md says what stands in it")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="a folder, or a place that fsspec knows")
    which = parser.add_argument_group("which jobs")
    which.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a model, a job, or a pattern; once for each"
    )
    which.add_argument("--failed", action="store_true", help="those that failed last time, again")
    which.add_argument("--force", action="store_true", help="also those of which nothing has changed")
    which.add_argument("--dry-run", action="store_true", help="list the jobs, and do none")
    where = parser.add_argument_group("where they run")
    where.add_argument("--jobs", type=int, metavar="N", help="how many at once; half as many as processors by default")
    where.add_argument("--engine", choices=("local", "ray"), default="local", help="processes here, or a Ray cluster")
    where.add_argument("--address", metavar="A", help="of the Ray cluster; RAY_ADDRESS, or one started here")
    where.add_argument("--upload", action="store_true", help="send the manifest's folder to Ray's workers")
    worse = parser.add_argument_group("compared with an earlier run")
    worse.add_argument("--against", metavar="DIR", help="exit with 1 if a job is worse there; otherwise if one fails")
    for name, default, what in (
        ("slower", 1.5, "latency of a file (and twice that for the seconds of a job)"),
        ("larger", 1.05, "size and nodes"),
        ("less-precise", 10.0, "difference from the model"),
    ):
        help = f"{what}: the factor that counts as worse; {default:g} by default"
        worse.add_argument(f"--{name}", type=float, default=default, metavar="X", help=help)


def run(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.zoo.compare import Allowed, regressions
    from tonnx.zoo.manifest import read_manifest
    from tonnx.zoo.results import read_earlier, read_rows
    from tonnx.zoo.run import Selection, chosen_jobs, run_zoo
    from tonnx.zoo.store import Store

    jobs = read_manifest(Path(options.manifest), _commands())
    selection = Selection(options.only, options.failed, options.force)
    if options.dry_run:
        jobs = chosen_jobs(jobs, selection, read_rows(Store(options.output)))
        lines = [f"{job.name}: {job.command}" for job in jobs]
        return Report("\n".join(lines), lambda: {"jobs": [{"job": job.name, "command": job.command} for job in jobs]})
    if min(options.slower, options.larger, options.less_precise) < 1:
        raise InvalidArgument("a figure is worse from a factor of at least 1 on")
    if "://" not in options.output and Path(options.output).is_file():
        raise InvalidArgument(f"{options.output} is a file", hint="-o takes a folder")
    before = read_earlier(options.against) if options.against else None
    engine = _engine(options)
    try:
        outcome = run_zoo(jobs, Store(options.output), engine, selection, lambda step: console.line(_told(step)))
    finally:
        if hasattr(engine, "close"):
            engine.close()
    worse = None
    if before is not None:
        worse = regressions(before, outcome.asked, Allowed(options.slower, options.larger, options.less_precise))
    return _report(options, outcome, worse)


def _commands() -> dict[str, Any]:
    """What may stand in a manifest: the options of the commands that do the jobs."""
    from tonnx.cli import export, retarget
    from tonnx.zoo.options import Options

    commands = {}
    for name, module in (("export", export), ("retarget", retarget)):
        parser = argparse.ArgumentParser(add_help=False)
        module.add_arguments(parser)
        commands[name] = Options(parser)
    return commands


def _engine(options: argparse.Namespace) -> Any:
    from tonnx.zoo.engines import LocalEngine, RayEngine

    if options.engine == "ray":
        folder = str(Path(options.manifest).resolve().parent)
        return RayEngine(options.address, options.jobs, upload=folder if options.upload else None)
    if options.address or options.upload:
        raise InvalidArgument("--address and --upload are for --engine ray")
    return LocalEngine(options.jobs)


def _told(step: Step) -> str:
    from tonnx.zoo.work import error_line

    row = step.row
    seconds = "" if row["seconds"] is None else f" in {row['seconds']:.1f} s"
    left = f", about {duration(step.left)} left" if step.done < step.total else ""
    what = f": {line}" if (line := error_line(row)) else ""
    return f"{step.done}/{step.total} {row['job']} {row['status']}{seconds}{left}{what}"


def duration(seconds: float) -> str:
    """Roughly, for people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _report(options: argparse.Namespace, outcome: Outcome, worse: list[Regression] | None) -> Report:
    from tonnx.zoo.work import error_line

    place = options.output.rstrip("/")
    failing, asked = outcome.failing, len(outcome.asked)
    some = f"{asked} of {len(outcome.rows)}" if asked < len(outcome.rows) else f"{asked}"
    lines = [
        f"{place}/index.html: {some} jobs, {asked - len(failing)} ok, {len(failing)} not; "
        f"{len(outcome.done)} done now, {outcome.kept} unchanged"
    ]
    for row in failing:
        lines.append(f"  [✗] {row['job']}: {row['status']}: {error_line(row)}".rstrip(": "))
    if worse is not None:
        lines.append(f"compared with {options.against}: " + (f"{len(worse)} worse" if worse else "nothing is worse"))
        lines += [f"  [✗] {regression}" for regression in worse]

    def data() -> dict[str, Any]:
        return {
            "page": f"{place}/index.html",
            "jobs": len(outcome.rows),
            "failing": [row["job"] for row in failing],
            "done": outcome.done,
            "unchanged": outcome.kept,
            "regressions": None if worse is None else [vars(regression) for regression in worse],
        }

    return Report("\n".join(lines), data, failed=bool(failing) if worse is None else bool(worse))

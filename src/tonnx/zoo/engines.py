"""Where jobs run: in processes of this machine, or on a Ray cluster. Both give rows as they come, in any order."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Protocol

from tonnx.errors import InvalidArgument, cause_of, first_line, needed, told_as
from tonnx.zoo.manifest import Job
from tonnx.zoo.process import FAILED
from tonnx.zoo.store import Store
from tonnx.zoo.work import Row, do, empty_row

LOST = "lost"
"""The status of a job whose workers died, each time that it was tried."""

Task = tuple[Job, str]
"""A job, and the fingerprint that its row is to carry."""


class Engine(Protocol):
    """Runs jobs."""

    slots: int
    """How many run at once."""

    def run(self, tasks: Sequence[Task], store: Store) -> Iterator[Row]:
        """One row for each task. Closing the iterator ends what still runs."""


class LocalEngine:
    """Processes of this machine."""

    def __init__(self, jobs: int | None = None) -> None:
        if jobs is not None and jobs < 1:
            raise InvalidArgument(f"at least one job runs at once, not {jobs}")
        self.slots = jobs or max(1, (os.cpu_count() or 1) // 2)

    def run(self, tasks: Sequence[Task], store: Store) -> Iterator[Row]:
        stop = threading.Event()
        with ThreadPoolExecutor(self.slots) as pool:
            futures = {pool.submit(do, job, store, mark, stop): job for job, mark in tasks}
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class RayEngine:
    """Tasks of a Ray cluster: placed by what they need, done again elsewhere if their worker dies."""

    address: str | None = None
    """Of the cluster; None: the one that RAY_ADDRESS names, or else one that is started here."""
    jobs: int | None = None
    """How many run at once; None: as many as the cluster has processors for."""
    retries: int = 3
    upload: str | None = None
    """The manifest's folder, to be sent to workers that do not see the same files."""

    def __post_init__(self) -> None:
        self._started = not import_ray().is_initialized()
        ray = enter_ray(self.address, self.jobs, self.upload)
        self.slots = self.jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        """Leave the cluster, if it was entered here."""
        if self._started:
            import_ray().shutdown()

    def run(self, tasks: Sequence[Task], store: Store) -> Iterator[Row]:
        ray = import_ray()
        waiting, running = list(reversed(tasks)), dict[Any, Task]()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        try:
            while waiting or running:
                while waiting and len(running) < (self.jobs or 2 * self.slots):  # the next ones wait at the door
                    job, mark = waiting.pop()
                    lacking = _lacking(job, nodes)
                    if lacking:
                        yield empty_row(job, FAILED, f"no worker of the cluster has {lacking}")
                        continue
                    running[self._submit(ray, job, store, mark)] = job, mark
                done, _ = ray.wait(list(running), num_returns=1) if running else ([], [])
                for reference in done:
                    job, mark = running.pop(reference)
                    yield _collected(ray, reference, job, mark)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _submit(self, ray: Any, job: Job, store: Store, mark: str) -> Any:
        options: dict[str, Any] = {
            "num_cpus": job.needs.cpus,
            "num_gpus": job.needs.gpus,
            "resources": dict(job.needs.resources) or None,
            "max_retries": self.retries,
        }
        if job.limits.memory is not None:
            options["memory"] = job.limits.memory
        function = _do_uploaded if self.upload else do
        return ray.remote(function).options(**options).remote(job, store, mark)


def _do_uploaded(job: Job, store: Store, mark: str) -> Row:
    """The job in the copy of its folder that Ray brought to this worker, which is where the worker runs."""
    from dataclasses import replace

    return do(replace(job, folder=os.getcwd()), store, mark)


def _collected(ray: Any, reference: Any, job: Job, mark: str) -> Row:
    try:
        row: Row = ray.get(reference)
    except ray.exceptions.RayTaskError as error:  # tonnx itself is missing there, or the store cannot be written
        cause = error.cause if error.cause is not None else error
        return empty_row(job, FAILED, "the worker could not begin", cause_of(cause))
    except ray.exceptions.RayError as error:
        return empty_row(job, LOST, "its worker died, each time that it was tried", first_line(error))
    return row


def _lacking(job: Job, nodes: Sequence[dict[str, float]]) -> str:
    """What no worker has enough of: Ray would wait for such a worker for ever."""
    needs = job.needs
    needed = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": job.limits.memory or 0, **dict(needs.resources)}
    if any(all(node.get(kind, 0) >= count for kind, count in needed.items()) for node in nodes):
        return ""
    return ", ".join(f"{kind} {count:g}" for kind, count in needed.items() if count)


def import_ray() -> Any:
    """Ray, or a word about how it is had."""
    return needed("ray", "the engine ray needs Ray", 'pip install "tonnx[ray]"')


def enter_ray(address: str | None = None, cpus: int | None = None, upload: str | None = None) -> Any:
    """Ray, connected: to the cluster at the address, to that of RAY_ADDRESS, or to one that is started here.

    ``upload``: a folder that every worker gets a copy of, and works in.
    """
    ray = import_ray()
    if ray.is_initialized():
        if upload is not None:
            raise InvalidArgument("this process has entered a Ray cluster already", why="files are sent when it does")
        return ray
    address = address or os.environ.get("RAY_ADDRESS")
    here: dict[str, Any] = {"address": address} if address else {"num_cpus": cpus, "include_dashboard": False}
    if upload is not None:
        here["runtime_env"] = {"working_dir": upload}
    what = f"the Ray cluster {address} cannot be reached" if address else "Ray cannot be started"
    with told_as(InvalidArgument, what, ConnectionError, ValueError, RuntimeError):
        ray.init(**here, log_to_driver=False, logging_level="error")
    return ray

"""The lowest opset at which each of PyTorch's operators is exported and proven: site/data/torch-lowest-opsets.csv.

    python -m tests.opinfo.lowest [--operators conv] [--write]

The first and the last of an operator's samples, of the first dtype that it takes; the opset is one that does for both.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import warnings

from tools.site_data import DATA, write_table

import tonnx
from tests.opinfo.oracle import DTYPES, Call, left_out, operators, samples
from tonnx.errors import RetargetError, TonnxError
from tonnx.ir.target import CANON, OLDEST

TABLE = DATA / "torch-lowest-opsets.csv"
SECONDS = 60


def lowest(name: str) -> tuple[str, int | None]:
    """The lowest opset for an operator; None if it is refused, or left out."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    info = operators()[name]
    supported = info.supported_dtypes("cpu")
    calls = next((found for dtype in DTYPES if dtype in supported and (found := samples(info, dtype))), [])
    opset = OLDEST
    for call in calls[:1] + calls[1:][-1:]:
        reached = _from(call, opset)
        if reached is None:
            return name, None
        opset = reached
    return name, opset if calls else None


def _from(call: Call, opset: int) -> int | None:
    """The lowest opset from ``opset`` on that does for one sample."""
    while opset <= CANON:
        try:
            tonnx.export(call.model, tuple(call.tensors), opset_version=opset)
        except RetargetError as error:
            opset = max([opset + 1, *(blocker.lowest_opset or 0 for blocker in error.blockers)])
        except tonnx.VerificationFailed:
            opset += 1
        except TonnxError:
            return None
        else:
            return opset
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", default="", help="only those whose names contain this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    names = [name for name in operators() if options.operators in name and not left_out(name)]
    rows = []
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=50) as pool:
        waiting = [(name, pool.apply_async(lowest, (name,))) for name in sorted(names)]
        for name, result in waiting:
            try:
                found = result.get(SECONDS)[1]
            except Exception as error:  # a crash of the framework, or one that takes too long: told in its row
                print(f"{name}: {type(error).__name__}")
                found = None
            rows.append([name, "" if found is None else str(found)])
    for row in rows if options.operators else ():
        print(*row)
    if options.write:
        write_table(TABLE, [["operator", "lowest opset"], *rows])


if __name__ == "__main__":
    main()

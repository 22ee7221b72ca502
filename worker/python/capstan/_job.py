"""The job that a script describes: what it trains, on how many samples, by which rule.

A script runs twice. First with CAPSTAN_DECLARE=FOLDER, up to its first batch: its tensors, their
initial values, the optimizer and the number of samples are written there, as a job file. Then on
each worker of that job, where all of it must be the same.
"""

import json
import math
import os
import pathlib
import re
import struct
import zlib
from typing import Any, Iterable, Optional, Union

from capstan._client import Error

DECLARE = "CAPSTAN_DECLARE"
WORKERS = "CAPSTAN_WORKERS"  # The number of workers: beside DECLARE, and in the tasks of that job.
RULES = "CAPSTAN_RULES"  # In the tasks: the rules that the script has declared.
_RULES_BYTES_MAX = 1 << 16  # Linux starts no process with a variable of 128 KiB.
JOB_FILE = "job.json"
WEIGHTS_FILE = "initial.safetensors"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}  # In seconds.


def folder_to_declare_in() -> Optional[pathlib.Path]:
    """Where this run of the script writes what it declares; None: it trains."""
    folder = os.environ.get(DECLARE)
    return pathlib.Path(folder) if folder else None


def consistency(sync: str) -> dict[str, Any]:
    """The job's consistency from "bsp", "ssp:N" or "asp"."""
    mode, _, bound = sync.partition(":")
    if mode in ("bsp", "asp") and not bound:
        return {mode: {}}
    if mode == "ssp" and bound.isdecimal():
        return {"ssp": {"staleness_bound": int(bound)}}
    raise ValueError(f"sync is {sync!r}, expected 'bsp', 'ssp:N' (N iterations, from 0) or 'asp'")


def batches_an_update(job: dict[str, Any]) -> int:
    """The batches of an update of the servers: in BSP one of each slot, else one.

    Raises Error if nothing says how many slots there are.
    """
    if "bsp" not in job["consistency"]:
        return 1
    slots = int(job["training"].get("slots") or os.environ.get(WORKERS, 0))
    if slots == 0:
        raise Error(f"a schedule needs the number of slots: slots=..., or {WORKERS}")
    return slots


def _checksum(value: Any) -> str:
    return f"checksum {zlib.crc32(json.dumps(value, sort_keys=True).encode()):08x}"


def _comparable(rules: dict[str, Any]) -> dict[str, Any]:
    """Rules as JSON has them, with checksums in place of what may be long."""
    copies: dict[str, Any] = json.loads(json.dumps(rules))
    for rule in copies.values():
        if "schedule" in rule:
            rule["schedule"] = _checksum(rule["schedule"])
    if len(json.dumps(copies)) > _RULES_BYTES_MAX:
        return {"all parameters": _checksum(copies)}
    return copies


def rules_matter() -> bool:
    """Whether this run writes its rules down, or compares them with what was declared."""
    return DECLARE in os.environ or RULES in os.environ


def variables(rules: dict[str, Any]) -> dict[str, str]:
    """The environment of a job's tasks, in which expect_declared() finds the rules, by name."""
    found = {RULES: json.dumps(_comparable(rules))}
    return found | ({WORKERS: os.environ[WORKERS]} if WORKERS in os.environ else {})


def expect_declared(rules: dict[str, Any]) -> None:
    """Raises Error if the run that declared this task's job had other rules."""
    if RULES not in os.environ:
        return
    declared, mine = json.loads(os.environ[RULES]), _comparable(rules)
    for name in {**declared, **mine}:
        if mine.get(name) != declared.get(name):
            raise Error(f"the rule of {name!r} is {mine.get(name)} in the script, and was "
                        f"{declared.get(name)} when it declared the job, expected the same: "
                        f"WORLD_SIZE was 1 then, and {WORKERS} is the same in both")


def ttl_seconds(ttl: Optional[Union[str, float]]) -> int:
    """A time to live in whole seconds, from text such as "30d", or from seconds. None: 0.

    Raises ValueError for anything else, and unless it is 60 seconds to 3650 days.
    """
    if ttl is None:
        return 0
    seconds = math.nan
    if isinstance(ttl, str):
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", ttl)
        if found:
            seconds = float(found[1]) * _UNITS[found[2]]
    elif isinstance(ttl, (int, float)) and not isinstance(ttl, bool):
        seconds = ttl
    if not 60 <= seconds <= 3650 * _UNITS["d"]:
        raise ValueError(f"ttl is {ttl!r}, expected None, a number of seconds, or a number and one "
                         "of s, m, h, d, such as '30d', from 60 s to 3650 d")
    return round(seconds)


def described_rows(name: str, dim: int, *, initial_std: float = 0.01, admit_after: int = 0,
                   evict_after_updates: int = 0, ttl: Optional[Union[str, float]] = None,
                   rows_max: int = 0, memory_mib: int = 0,
                   buckets: Optional[int] = None) -> dict[str, Any]:
    """A table of rows in the job's `program.rows`; the arguments are those of capstan.rows."""
    return {
        "name": name, "dim": dim, "initial_std": initial_std,
        "lifetime": {"admit_after": admit_after, "evict_after_updates": evict_after_updates,
                     "ttl_seconds": ttl_seconds(ttl), "rows_max": rows_max,
                     "memory_mib": memory_mib},
        **({} if buckets is None else {"buckets": buckets}),
    }


def write_safetensors(path: pathlib.Path, tensors: Iterable[tuple[str, Any, bytes]]) -> None:
    """Writes fp32 tensors, (name, shape, little-endian bytes) each, as a safetensors file."""
    header, end, parts = {}, 0, []
    for name, shape, content in tensors:
        header[name] = {"dtype": "F32", "shape": list(shape),
                        "data_offsets": [end, end + len(content)]}
        end += len(content)
        parts.append(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for part in parts:
            file.write(part)


def write_job(folder: pathlib.Path, job: dict[str, Any]) -> None:
    """Writes the job file last: it exists only if all other files do."""
    if (folder / WEIGHTS_FILE).exists():
        job["training"]["initial_weights"] = str(folder / WEIGHTS_FILE)
    partial = folder / (JOB_FILE + ".tmp")
    partial.write_text(json.dumps(job, indent=1))
    partial.rename(folder / JOB_FILE)

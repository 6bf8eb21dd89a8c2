"""Several processes, usually one a host, that run one program over all of their devices, through JAX's own runtime.

Every process runs the same code on the same configuration. Only the first one writes tables and pictures. What only one
process knows (a signal, a damaged file) is agreed on before anything follows from it: processes that took different
branches would wait for each other for ever.
"""

import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec


@dataclasses.dataclass(frozen=True)
class Hosts:
    """How the processes of a distributed run find each other."""

    coordinator: str = ""
    """host:port of the first process; empty: JAX finds it (Slurm, Open MPI, Cloud TPU)."""
    n_processes: int | None = None
    """Number of processes; none: JAX finds it."""
    process: int | None = None
    """Which of them this one is, from 0; none: JAX finds it."""
    start_timeout: int = 300
    """Seconds to wait for the other processes at the start."""
    lost_timeout: int = 60
    """Seconds without a sign of life after which a process counts as lost, which ends the run."""

    def __post_init__(self) -> None:
        for name in ("start_timeout", "lost_timeout"):
            if getattr(self, name) < 1:
                raise ValueError(f"hosts.{name} is {getattr(self, name)}: it must be at least 1")
        if self.coordinator and not self.coordinator.rpartition(":")[2].isdecimal():
            raise ValueError(f"hosts.coordinator is {self.coordinator!r}: it must be host:port")
        if self.n_processes is not None and self.n_processes < 1:
            raise ValueError(f"hosts.n_processes is {self.n_processes}: it must be at least 1")
        # Where JAX finds the number of processes, this one may have any number from 0 on.
        if self.process is not None and not 0 <= self.process < (self.n_processes or self.process + 1):
            raise ValueError(f"hosts.process is {self.process}: it must be from 0 to {(self.n_processes or 1) - 1}")


def make_devices_of_cores(n_devices: int) -> None:
    """Gives JAX up to `n_devices` of this machine's cores as devices, for where there is no accelerator.

    To be called before anything is computed. A number in $XLA_FLAGS or $JAX_NUM_CPU_DEVICES takes precedence.
    Two devices of a core each train faster than one with two threads, which wait for each other in every product.
    """
    by_flag = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    # JAX has read $JAX_NUM_CPU_DEVICES into this setting.
    by_setting = getattr(jax.config, "jax_num_cpu_devices", -1) > 0
    if n_devices > 1 and not by_flag and not by_setting:
        # More devices than cores would only take turns. `Grid.check_devices` will refuse to run with too few.
        jax.config.update("jax_num_cpu_devices", min(n_devices, n_cores()))


def n_cores() -> int:
    """Cores that this process may use."""
    # `os.cpu_count` counts the whole machine, whatever taskset or Slurm gave this process. Not every system knows that.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def join(hosts: Hosts) -> None:
    """Makes this process one of several. To be called before anything is computed.

    ValueError where the processes do not come together.
    """
    # On a CPU, processes can exchange nothing without an implementation of collectives.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # the run listens to signals itself
    try:
        with last_words(f"the processes of the run have not come together in {hosts.start_timeout} seconds"):
            jax.distributed.initialize(
                hosts.coordinator or None,
                hosts.n_processes,
                hosts.process,
                initialization_timeout=hosts.start_timeout,
                heartbeat_timeout_seconds=hosts.lost_timeout,
                shutdown_timeout_seconds=hosts.lost_timeout,
            )
    except Exception as error:  # of many kinds, by how the processes were to find each other
        reason = " ".join(str(error).split())
        raise ValueError(f"the processes of the run do not come together: {reason[:200]}") from error


@contextlib.contextmanager
def last_words(line: str) -> Iterator[None]:
    """A block that leaves `line` on stderr if this process ends inside it, in whatever way.

    Where another process is lost, JAX's runtime ends this one without a way back to Python. So a child process waits
    for the end, and prints the line.
    """
    # The child reads until the pipe is closed. It gets a word if the block has ended, and nothing if this process is
    # gone. In a session of its own it outlives a Ctrl-C, which a terminal sends to all processes of a group.
    code = "import sys; sys.stdin.read() or print(sys.argv[1], file=sys.stderr)"
    child = subprocess.Popen([sys.executable, "-c", code, line], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        child.communicate(b"the block has ended")


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


def is_one_of_several() -> bool:
    return jax.process_count() > 1


def largest(number: int) -> int:
    """The largest `number` that any process gives. All have to call this, and none goes on before all have."""
    if not is_one_of_several():
        return number
    return int(multihost_utils.process_allgather(np.int32(number)).max())


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """A block that fails in every process if it fails in one; the others raise RuntimeError."""
    try:
        yield
    except Exception:
        # The others wait in `largest(0)` below: they have to be told before the error goes on its way.
        largest(1)
        raise
    if largest(0):
        raise RuntimeError("another process could not do it")


def wait_for_all() -> None:
    """Returns when all processes have come here."""
    largest(0)


def readable(tree: Any) -> Any:
    """`tree` with all of its numbers in every process. All processes have to call this: it copies between them."""
    elsewhere = [leaf.sharding for leaf in jax.tree.leaves(tree) if not is_readable(leaf)]
    if not elsewhere:
        return tree
    return _copier(NamedSharding(elsewhere[0].mesh, PartitionSpec()))(tree)


def is_readable(leaf: Any) -> bool:
    """Whether this process has all numbers of an array."""
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated


@functools.cache
def _copier(sharding: NamedSharding) -> Any:
    # Cached: every call would otherwise make a new function, and compile it anew.
    return jax.jit(lambda tree: tree, out_shardings=sharding)

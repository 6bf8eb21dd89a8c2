"""Several processes, usually one on each host, that run one program on all of their devices through JAX's runtime.

Every process runs the same code with the same configuration. Only the first one writes tables and pictures. Some facts
are known to one process only, such as a signal or a damaged file. The processes agree on them before they act: if they
took different branches, they would wait for each other for ever.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.distributed import global_state  # the only way to the store that the processes share
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from minimax_lib.leaving import interrupted
from minimax_lib.messages import one_line

# Settings that may differ between the processes of a run.
OF_ONE_PROCESS = frozenset({"hosts.coordinator", "hosts.process", "compilation_cache"})


@dataclasses.dataclass(frozen=True)
class Hosts:
    """How the processes of a distributed run find each other."""

    coordinator: str = ""
    """host:port of the first process. Empty: JAX finds it (Slurm, Open MPI, Cloud TPU)."""
    n_processes: int | None = None
    """Number of processes. None: JAX finds it."""
    process: int | None = None
    """Number of this process, from 0. None: JAX finds it."""
    start_timeout: int = 300
    """Seconds to wait for the other processes at the start."""
    lost_timeout: int = 60
    """Seconds without a sign of life after which a process counts as lost. The run then ends."""

    def __post_init__(self) -> None:
        for name in ("start_timeout", "lost_timeout"):
            if getattr(self, name) < 1:
                raise ValueError(f"hosts.{name} is {getattr(self, name)}: it must be at least 1")
        if self.coordinator:
            host, _, port = self.coordinator.rpartition(":")
            if not (host and port.isascii() and port.isdecimal()):
                raise ValueError(f"hosts.coordinator is {self.coordinator!r}: it must be host:port")
            if not 1 <= int(port) <= 65535:
                raise ValueError(f"hosts.coordinator is {self.coordinator!r}: its port must be from 1 to 65535")
        if self.n_processes is not None and self.n_processes < 1:
            raise ValueError(f"hosts.n_processes is {self.n_processes}: it must be at least 1")
        # If JAX finds the number of processes, this one may have any number from 0 on.
        if self.process is not None and not 0 <= self.process < (self.n_processes or self.process + 1):
            raise ValueError(f"hosts.process is {self.process}: it must be from 0 to {(self.n_processes or 1) - 1}")


def make_devices_of_cores(n_devices: int) -> None:
    """Gives JAX up to `n_devices` of this machine's cores as devices, where there is no accelerator.

    Call it before anything is computed. A number in $XLA_FLAGS or $JAX_NUM_CPU_DEVICES takes precedence. Two devices
    with a core each train faster than one device with two threads, which wait for each other in every matrix product.
    """
    by_flag = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    # JAX has read $JAX_NUM_CPU_DEVICES into this setting.
    by_setting = getattr(jax.config, "jax_num_cpu_devices", -1) > 0
    if n_devices > 1 and not by_flag and not by_setting:
        # More devices than cores would only take turns. `DeviceMesh.check_devices` refuses to run with too few. JAX
        # raises if something, such as a plugin, has already computed. Then there is one device, as that check will say.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", min(n_devices, n_cores()))


def n_cores() -> int:
    """Cores that this process may use."""
    # `os.cpu_count` counts the whole machine, even if taskset or Slurm gave us less. Not every system can tell.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def join(hosts: Hosts, settings: Mapping[str, Any]) -> None:
    """Makes this process one of several. Call it before anything is computed.

    ValueError in all processes if their `settings` (by dotted name) differ or if they cannot connect. If some processes
    do not start, this one prints a line and leaves with status 2.
    """
    # On a CPU, processes need an implementation of collectives to exchange anything.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # the run handles signals itself
    check_port(hosts)
    _connect(hosts)
    check_equal(_of_all_processes(settings, hosts.start_timeout))
    check_devices([device.process_index for device in jax.devices()])


def check_port(hosts: Hosts) -> None:
    """ValueError if this is the first process and its port is in use by another program."""
    if not hosts.coordinator or hosts.process != 0:
        return
    port = int(hosts.coordinator.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise ValueError(
            f"hosts.coordinator is {hosts.coordinator!r}: port {port} cannot be opened here "
            f"({os.strerror(error.errno or 0).lower()}), choose another"
        ) from None


def _connect(hosts: Hosts) -> None:
    failed: list[Exception] = []
    ended = threading.Event()  # the thread's own `is_alive` will not do: a Ctrl-C during `join` makes it false

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                hosts.coordinator or None,
                hosts.n_processes,
                hosts.process,
                # Longer than any wait here. At its timeout JAX ends the process without a way back to Python.
                initialization_timeout=hosts.start_timeout + 3600,
                heartbeat_timeout_seconds=hosts.lost_timeout,
                shutdown_timeout_seconds=hosts.lost_timeout,
            )
        except Exception as error:  # its type depends on how the processes find each other
            failed.append(error)
        ended.set()

    # In a daemon thread: this process must be able to leave without waiting for the others.
    connecting = threading.Thread(target=initialize, daemon=True)
    stopped: KeyboardInterrupt | None = None
    with last_words("error: the processes of the run have not come together: is each --hosts.process given once?"):
        try:
            # Here too a Ctrl-C may come. It must not reach the interpreter's own end, which would wait for the thread.
            connecting.start()
            ended.wait(hosts.start_timeout)
        except KeyboardInterrupt as error:
            stopped = error
    if stopped is not None:
        os._exit(interrupted(stopped, " before the run began"))
    if not ended.is_set():
        print(f"error: {_missing(hosts)}", file=sys.stderr, flush=True)
        os._exit(2)
    if failed:
        raise ValueError(_not_found(hosts, failed[0])) from failed[0]


def _missing(hosts: Hosts) -> str:
    started = f"all {hosts.n_processes} of them" if hosts.n_processes else "all of them"
    where = f"--hosts.coordinator {hosts.coordinator}" if hosts.coordinator else "the same flags"
    return (
        f"the processes of the run have not come together in {hosts.start_timeout} seconds (--hosts.start-timeout): "
        f"start {started} with {where}, the address of the first"
    )


def _not_found(hosts: Hosts, error: Exception) -> str:
    unset = {"coordinator": not hosts.coordinator, "n_processes": hosts.n_processes is None}
    unset["process"] = hosts.process is None
    names = [f"--hosts.{name.replace('_', '-')}" for name, is_unset in unset.items() if is_unset]
    hint = f" (give {', '.join(names)}: JAX does not find it here)" if names else ""
    return f"the processes of the run do not come together: {one_line(error)}{hint}"


def _of_all_processes(settings: Mapping[str, Any], seconds: int) -> list[dict[str, Any]]:
    """The settings of all processes, in the order of their numbers. ValueError if one is missing after `seconds`."""
    # They are exchanged through JAX's key-value store, not as arrays: nothing may be computed before the processes are
    # known to agree. A process that expects more processes than there are would wait for ever.
    store: Any = global_state.client
    folder = "minimax_lib/settings"
    try:
        store.key_value_set(f"{folder}/{global_state.process_id}", json.dumps(dict(settings)))
        store.wait_at_barrier("minimax_lib_settings", 1000 * seconds)
        said = store.key_value_dir_get(folder)
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"the processes of the run could not compare their settings: {one_line(error)}") from error
    return [json.loads(text) for _, text in sorted(said, key=lambda item: int(item[0].rpartition("/")[2]))]


def check_equal(settings: Sequence[Mapping[str, Any]]) -> None:
    """ValueError with the names of the settings in which a process differs from the first."""
    first = settings[0]
    for process, other in enumerate(settings):
        names = [name for name in dict.fromkeys([*first, *other]) if name not in OF_ONE_PROCESS]
        differing = [name for name in names if first.get(name) != other.get(name)]
        if differing:
            shown = [f"{name} is {first.get(name)!r} and {other.get(name)!r}" for name in differing[:3]]
            more = f", and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise ValueError(
                f"processes 0 and {process} of the run have different settings: {'; '.join(shown)}{more} "
                "(start all of them with the same flags)"
            )


def check_devices(owners: Sequence[int]) -> None:
    """ValueError unless all processes have the same number of devices. `owners` has the process of each device."""
    counts = collections.Counter(owners)
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{counts[process]} in process {process}" for process in sorted(counts))
        raise ValueError(f"the processes of the run must have the same number of devices: there are {each}")


@contextlib.contextmanager
def last_words(line: str) -> Iterator[None]:
    """A block that leaves `line` on stderr if this process ends inside it, in any way.

    If another process is lost, JAX's runtime ends this one without a way back to Python. So a child process waits for
    the end and prints the line.
    """
    # The child reads until the pipe is closed. It reads some text if the block has ended, and nothing if this process
    # has. A terminal sends Ctrl-C to a whole group of processes: the child has its own session to survive it.
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
    """The largest `number` of any process. All processes must call this, and each waits until all have."""
    if not is_one_of_several():
        return number
    return int(multihost_utils.process_allgather(np.int32(number)).max())


@contextlib.contextmanager
def all_or_none() -> Iterator[None]:
    """A block that fails in every process if it fails in one. The others raise RuntimeError.

    Inside it, processes must not wait for each other: they would wait for the failed one, which waits here.
    """
    try:
        yield
    except Exception:
        # The others wait in `largest(0)` below. They must be told before the error is raised further.
        largest(1)
        raise
    if largest(0):
        raise RuntimeError("another process could not do it")


def wait_for_all() -> None:
    """Returns when all processes have called it."""
    largest(0)


def readable(tree: Any) -> Any:
    """`tree` with all of its numbers in every process. All processes must call this: it copies between them."""
    elsewhere = [leaf.sharding for leaf in jax.tree.leaves(tree) if not is_readable(leaf)]
    if not elsewhere:
        return tree
    return _copier(NamedSharding(elsewhere[0].mesh, PartitionSpec()))(tree)


def is_readable(leaf: Any) -> bool:
    """Whether this process holds all numbers of an array."""
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated


@functools.cache
def _copier(sharding: NamedSharding) -> Any:
    # Cached, since a new function would be compiled again at every call.
    return jax.jit(lambda tree: tree, out_shardings=sharding)

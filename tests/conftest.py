"""Four host devices, programs that compile fast, and no silent rank promotion, before jax is imported."""

import gc
import hashlib
import os
import platform
import shutil
import signal
import sys
from importlib.metadata import version
from pathlib import Path

# A program of the tests runs once or twice: it pays to compile it fast, not to make it fast.
COMPILE_FAST = (
    "--xla_backend_optimization_level=0",
    # Both copy loops within loops again and again, and take longer than all other passes together.
    "--xla_disable_hlo_passes=while-loop-invariant-code-motion,simplify-while-loops",
    # Dividing a program among threads costs time. The other core has a worker of its own.
    "--xla_cpu_parallel_codegen_split_count=1",
)
# Without the fusion emitters, compiling takes about a quarter of the time. But one computation may differ in its last
# bit from program to program. Tests that compare the bits of two programs turn the emitters on again (`exact.py`). Many
# deep tests do: with -m, the emitters are never turned off.
# Versions of jaxlib after 0.11.0 cannot turn them off, and end the process at an option that they do not know.
CAN_BE_OFF = tuple(map(int, version("jaxlib").split(".")[:3])) <= (0, 11, 0)
COMPILE_FASTEST = ("--xla_cpu_use_fusion_emitters=false",) if CAN_BE_OFF else ()
# Whoever begins with a long file at the end works alone for as long as it takes.
LONGEST_FIRST = """
    methods experiment load_run ppo grid_generators level_buffer wrappers batch_env level_host
    evaluate_cli host teacher grid_mutate checkpoint lasertag_levels galleries evaluation gridworld report export s5
    devices run_safety
"""
# These use the programs of `zoo.py`. One worker runs them all, so each program is compiled once.
ZOO = ("methods", "curricula", "teacher", "joint", "experiment", "jaxlib", "ncc", "traced", "cenie")
CACHES = Path(__file__).parents[1] / ".jax_cache" / "tests"
CACHE_LIMIT = 2**30  # bytes
MAPS_AFTER_FILE, MAPS_AFTER_TEST = 30_000, 45_000


def processor() -> str:
    """What compiled programs depend on: the processor's name and abilities."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def cache_folder() -> Path:
    """Where the tests keep compiled programs: a folder for each version of jax and each processor."""
    return CACHES / f"jax-{version('jaxlib')}-{hashlib.sha256(processor().encode()).hexdigest()[:8]}"


def tidy_cache(folder: Path) -> None:
    """Removes what other versions and processors left, and everything once there is too much of it."""
    for other in CACHES.glob("*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    if folder.exists() and sum(entry.stat().st_size for entry in os.scandir(folder)) > CACHE_LIMIT:
        shutil.rmtree(folder, ignore_errors=True)


os.environ.setdefault("JAX_PLATFORMS", "cpu")
FLAGS = os.environ.get("XLA_FLAGS", "")
if "host_platform_device_count" not in FLAGS:
    own = ("--xla_force_host_platform_device_count=4", *COMPILE_FAST)
    fastest = () if any(word.startswith("-m") for word in sys.argv[1:]) else COMPILE_FASTEST
    os.environ["XLA_FLAGS"] = " ".join((FLAGS, *own, *fastest)).strip()  # which the workers of xdist find set
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # the workers of xdist find it set
    tidy_cache(cache_folder())
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache_folder())

import jax  # noqa: E402

from minimax_lib.loops import RUN_ONCE, release_compiler_memory  # noqa: E402

# Tracing makes many objects that stay. Python would look through them every 700, each time with a hook of Hypothesis.
gc.set_threshold(50_000, 20, 50)
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_numpy_rank_promotion", "raise")
RUN_ONCE["xla_backend_optimization_level"] = 0  # as everything here; the package asks for more

import pytest  # noqa: E402
from xdist.scheduler import LoadFileScheduling  # noqa: E402

from tests import budget  # noqa: E402

# A shell that starts something in the background makes it ignore Ctrl-C, and everything that it starts. Tests of Ctrl-C
# would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):  # and nohup does so with a terminal that is closed
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    """Both workers end together."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST_FIRST.split())}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


class ByFile(LoadFileScheduling):
    """A file is run by one worker, and so are the files of the zoo."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return "zoo" if Path(file).stem.removeprefix("test_") in ZOO else file


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)


costs = {}  # of each file: programs, processor seconds


@pytest.fixture(autouse=True, scope="module")
def stays_in_budget(request):
    """A file that compiles more programs than it may, or takes longer, fails (`budget.py`)."""
    before = budget.used()
    yield
    name, after = request.path.stem.removeprefix("test_"), budget.used()
    costs[name] = (after.programs - before.programs, after.seconds - before.seconds)
    items = [item for item in request.session.items if item.path == request.path]
    over = budget.excess(name, before, after)
    if over and not any(item.get_closest_marker("deep") for item in items):
        pytest.fail(over, pytrace=False)


def pytest_sessionfinish(session):
    """A worker hands its costs to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["costs"] = costs
    gc.freeze()  # pytest would look for garbage twice before it ends, a second and more each time


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    costs.update(getattr(node, "workeroutput", {}).get("costs", {}))


def pytest_terminal_summary(terminalreporter):
    """Which files cost most: where to begin when the tests have become slow."""
    if len(costs) > 1:
        terminalreporter.section("most expensive files")
        for line in budget.table(costs):
            terminalreporter.write_line(line)


@pytest.fixture(autouse=True, scope="module")
def leaves_jax_as_it_was():
    """Once a file turned the cache off, and every later file of its worker was compiled anew in each run."""
    before = dict(jax.config.values)
    yield
    changed = [name for name, value in jax.config.values.items() if value != before[name]]
    for name in changed:
        jax.config.update(name, before[name])
    if changed:
        pytest.fail(f"the file leaves settings of JAX changed: {', '.join(changed)}", pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Compiled programs are mapped into memory piece by piece, and the kernel allows a process 65,530 pieces."""
    gc.freeze()  # a search for garbage passes over what earlier files have left, which takes seconds each time
    yield
    gc.unfreeze()
    if not 0 < n_maps() <= MAPS_AFTER_FILE:
        jax.clear_caches()
    release_compiler_memory()


@pytest.fixture(autouse=True)
def forget_programs_of_a_long_file(request):
    """Deep tests of one file map up to 36,000 pieces. Counting takes some milliseconds, so other tests do without."""
    yield
    if request.node.get_closest_marker("deep") and n_maps() > MAPS_AFTER_TEST:
        jax.clear_caches()


def n_maps() -> int:
    """The pieces of memory that this process has mapped; 0 where it cannot be told."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0

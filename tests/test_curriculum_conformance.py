"""Every registered curriculum conforms, alone and inside another; and each way of not conforming is found."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib import axes
from minimax_lib.counts import Count
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, level_batch
from minimax_lib.curricula.levels.designed import Teacher
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.curricula.levels.sfl import SFLSettings
from minimax_lib.curricula.registry import RUNNERS, register_curriculum
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.teacher import MazeDesign
from minimax_lib.envs.pendulum import Pendulum
from minimax_lib.models.settings import FeedForward
from minimax_lib.opponents.settings import OPPONENTS
from minimax_lib.testing.curricula import CurriculumTrial, check_batches, check_curriculum, small_agent
from tests.probes import Probe

ENV = AMaze(height=3, width=3, n_walls=2, max_steps=6)
TEACHER = Teacher(design=MazeDesign(noise_dim=2), model=FeedForward(conv_filters=2, dense_width=4, head_width=2))
BUFFER = {"capacity": 8, "min_fill": 0.25}
SMALL: dict[str, dict[str, Any]] = {
    "plr": BUFFER,
    "accel": BUFFER | {"n_edits": 2, "n_parents": 2},
    "traced": BUFFER | {"n_edits": 2, "n_parents": 2},
    "cenie": BUFFER,
    "tasks": {"n_levels": 8},
    "box": {"n_steps": 12},
    "episode_plr": BUFFER,
    "sfl": {"every": 2, "n_scored": 8, "n_kept": 3},
    "ncc": {"capacity": 8, "every": 2, "n_new": 2},
    "paired": {"teacher": TEACHER},
    "selfplay": {"capacity": 2, "every": 2},
    "maestro": {"capacity": 2, "every": 2, "plr": PLRSettings(**BUFFER)},
    "finite": {"n_levels": 8},
    "teacher": vars(TEACHER),
}
GAME = LaserTag(height=4, width=4, min_side=3, max_steps=6)
OTHER_ENVS = {
    "runner box": Pendulum(max_steps=6, hold_steps=2),
    "runner selfplay": GAME,
    "runner maestro": GAME,
    "PFSP on PLR": GAME,
}
SHIPPED = {f"runner {name}": (RUNNERS[name], SMALL.get(name, {})) for name in RUNNERS.names()}
SHIPPED |= {  # the others build what the runner of their name does
    f"generator {name}": (GENERATORS[name], SMALL.get(name, {})) for name in GENERATORS.names() if name not in RUNNERS
}
VARIANTS = {
    "parallel PLR": (RUNNERS["plr"], BUFFER | {"parallel": True}),
    "parallel ACCEL": (RUNNERS["accel"], BUFFER | {"parallel": True, "n_edits": 2}),
    "REPAIRED": (RUNNERS["plr"], BUFFER | {"generator": TEACHER, "score": "relative_regret", "n_students": 2}),
    "PLR on SFL": (RUNNERS["plr"], BUFFER | {"generator": GENERATORS["sfl"](**SMALL["sfl"])}),
    "PLR on PLR": (RUNNERS["plr"], BUFFER | {"generator": GENERATORS["plr"](**BUFFER), "robust": False}),
    "PFSP on PLR": (
        RUNNERS["selfplay"],
        {"capacity": 2, "every": 2, "levels": GENERATORS["plr"](**BUFFER), "opponents": OPPONENTS["pfsp"]()},
    ),
    "ACCEL on PLR": (RUNNERS["accel"], SMALL["accel"] | {"generator": GENERATORS["plr"](**BUFFER)}),
}


def with_defaults(name: str) -> bool:
    """Whether the settings are those of the package, not of another test."""
    return (SHIPPED | VARIANTS)[name][0].__module__.startswith("minimax_lib.")


@pytest.mark.deep
@pytest.mark.parametrize("name", [name for name in SHIPPED | VARIANTS if with_defaults(name)])
def test_every_curriculum_conforms(name):
    maker, settings = (SHIPPED | VARIANTS)[name]
    env = OTHER_ENVS.get(name, ENV)
    settings = maker(**settings, **({"n_parallel": 4} if name in VARIANTS or name.startswith("runner") else {}))
    agent = small_agent(env, 2 if "teacher" in name or "paired" in name or "REPAIRED" in name else 1)
    check_curriculum(settings.build(env, agent, 4), env, jax.random.key(0), agent)


# ------------------------------------------------------------------------------------------- each fault by itself


PROBE = Probe()  # compiles faster than a maze


@dataclasses.dataclass(frozen=True)
class Sound(Curriculum):
    """A curriculum without a fault, which counts its batches."""

    n_rows: int = 4

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows)

    def init(self, key: jax.Array) -> Any:
        return jnp.zeros((), jnp.int32)

    def propose(self, shared_key, key, clock, state, students) -> tuple[Any, LevelBatch]:
        return state + 1, level_batch(jax.vmap(PROBE.sample_level)(jax.random.split(key, self.n_rows)))

    def observe(self, key, clock, state, batch, outcome) -> tuple[Any, dict[str, jax.Array]]:
        return state, {"best": outcome.episodes.best.max()}


def proposing(**changes: Any) -> type:
    """`Sound`, whose batches differ: each change is a function of (batch, key, state)."""

    @dataclasses.dataclass(frozen=True)
    class Changed(Sound):
        def propose(self, shared_key, key, clock, state, students):
            state, batch = super().propose(shared_key, key, clock, state, students)
            return state, batch.replace(**{name: change(batch, key, state) for name, change in changes.items()})

    return Changed


def observing(change: Any) -> type:
    """`Sound`, whose `observe` returns `change(state, outcome)`."""

    @dataclasses.dataclass(frozen=True)
    class Changed(Sound):
        def observe(self, key, clock, state, batch, outcome):
            return change(state, outcome)

    return Changed


class NotFrozen(Sound):
    __setattr__ = object.__setattr__  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True)
class NaN(Sound):
    """Divides by the number of finished episodes."""

    def init(self, key: jax.Array) -> Any:
        return jnp.zeros((), jnp.float32)

    def observe(self, key, clock, state, batch, outcome):
        episodes = outcome.episodes
        return (episodes.mean * episodes.count).sum() / episodes.count.sum().astype(jnp.float32), {}


@dataclasses.dataclass(frozen=True)
class Neighbourly(Sound):
    """Seeds copy what the first of them does."""

    def propose(self, shared_key, key, clock, state, students):
        data = jax.random.key_data(key)
        common = jax.lax.pmax(data, axes.SEED) if axes.is_bound(axes.SEED) else data
        return super().propose(shared_key, jax.random.wrap_key_data(common), clock, state, students)


@dataclasses.dataclass(frozen=True)
class Counts(Sound):
    def extra_env_steps(self, state):
        return jnp.zeros((), jnp.int32)


def compiled(*fault: Any) -> Any:
    """A fault that is found when the curriculum has been compiled and run."""
    return pytest.param(*fault, marks=pytest.mark.deep)


COINS = {"train": lambda batch, key, state: jax.random.bernoulli(key)}
FAULTS = [
    (NotFrozen, "can be changed"),
    (proposing(levels=lambda b, k, s: jax.tree.map(lambda x: x[:2], b.levels)), "shape"),
    (proposing(levels=lambda b, k, s: b.levels.replace(length=b.levels.length.astype(jnp.float32))), "levels"),
    compiled(proposing(slots=lambda b, k, s: b.slots - 1), "slots below -1"),
    compiled(proposing(source=lambda b, k, s: b.source + 1), "its plan names"),
    compiled(proposing(n_mutations=lambda b, k, s: b.n_mutations - 1), "negative number of mutations"),
    (proposing(train=lambda b, k, s: jnp.ones(4, bool)), "shape"),
    (proposing(**COINS), "everywhere_all"),
    (observing(lambda state, outcome: (state + 0.5, {})), "another form"),
    (observing(lambda state, outcome: ((state, state), {})), "another form"),
    (observing(lambda state, outcome: (state, {"x": jnp.ones(3)})), r"it must be f32\[\]"),
    (observing(lambda state, outcome: (state, {"x": jnp.ones((), jnp.int32)})), r"it must be f32\[\]"),
    (NaN, "remembers NaN"),
    compiled(Neighbourly, "when another seed runs beside it"),
    (Counts, "must be a Count"),
]


@pytest.mark.deep
def test_a_sound_curriculum_passes():
    check_curriculum(Sound(), PROBE, jax.random.key(0))


@pytest.mark.parametrize(("faulty", "message"), FAULTS)
def test_each_fault_is_found(faulty, message):
    with pytest.raises(AssertionError, match=message):
        check_curriculum(faulty(), PROBE, jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": np.full(4, -2)}, "Sound proposes slots below -1"),
        ({"source": np.full(4, 1)}, r"Sound proposes sources \{1\}: its plan names"),
        ({"n_mutations": np.full(4, -1)}, "Sound proposes a negative number of mutations"),
    ],
    ids=str,
)
def test_what_a_batch_says_of_its_levels_is_checked(changes, message):
    """Of batches on the host: nothing is compiled."""
    trial = CurriculumTrial(Sound(), PROBE, small_agent(PROBE), 8)
    zeros = np.zeros(4, np.int32)
    batch = LevelBatch(levels=(), slots=zeros - 1, source=zeros, n_mutations=zeros, train=np.ones((), bool))
    check_batches(trial, [batch, batch])
    with pytest.raises(AssertionError, match=message):
        check_batches(trial, [batch, batch.replace(**changes)])


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(0), "n_rows is 0"),
        (Plan(4, n_train_rows=5), "n_train_rows is 5"),
        (Plan(4, sources=()), "sources is"),
        (Plan(4, sources=(0, 7)), "sources is"),
        ("four", "must be a Plan"),
    ],
)
def test_a_wrong_plan_is_found(plan, message):
    @dataclasses.dataclass(frozen=True)
    class Planned(Sound):
        @property
        def plan(self):
            return plan

    with pytest.raises(AssertionError, match=message):
        check_curriculum(Planned(), PROBE, jax.random.key(0))


class NoDataclass:
    def build(self, env, agent, n_rows): ...


@dataclasses.dataclass(frozen=True)
class NothingToBuild:
    share: float = 0.5


@pytest.mark.parametrize("settings", [NoDataclass, NothingToBuild])
def test_what_is_no_settings_of_a_curriculum_is_refused_in_one_line(settings):
    with pytest.raises(ValueError, match=r"^curriculum 'mine' is registered with .*build\(env, agent, n_rows\)$"):
        register_curriculum("mine", settings)
    assert "mine" not in RUNNERS


def test_a_taken_name_is_refused_and_the_same_curriculum_is_not():
    with pytest.raises(ValueError, match="runner 'plr' is registered already"):
        register_curriculum("plr", SFLSettings)
    assert register_curriculum("sfl", RUNNERS["sfl"]) is RUNNERS["sfl"]


# --------------------------------------------------------------------------------------------- the example of the docs


def test_counts_are_exact_past_32_bits():
    count, total = Count.zero(), 0
    for n in (5, 2**32 - 1, 2**31, 0, 2**32 - 1, 7):
        count, total = count.plus(n), total + n
        assert int(count.number()) == total
    assert int((count + count).number()) == 2 * total
    many = jax.vmap(lambda n: count.plus(n))(jnp.array([0, 2**32 - 1], jnp.uint32))
    assert many.number().tolist() == [total, total + 2**32 - 1]


EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "hard_levels.py"
EXAMPLE_FLAGS = """
    --plugins docs.examples.hard_levels --env.height 3 --env.width 3 --env.n-walls 2 --env.max-steps 6
    --model ff --model.dense-width 8 --model.conv-filters 2 --runner.n-parallel 4 --runner.n-steps 12
    --n-updates 4 --log-every 2 --eval.every 0 --no-report
"""


@pytest.mark.deep
@pytest.mark.parametrize(
    "flags",
    [
        ["--runner", "hard_levels", "--runner.share", "0.25"],
        ["--runner", "plr", "--runner.generator", "hard_levels", "--runner.capacity", "8"],
    ],
    ids=["by itself", "inside PLR"],
)
def test_the_example_of_the_docs_trains(flags, tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLE.parents[2])
    from minimax_lib.commands.train import main
    from minimax_lib.store.tables import read_table

    assert main([*EXAMPLE_FLAGS.split(), *flags, "--log-dir", str(tmp_path), "--name", "x"]) == 0
    _, rows = read_table(tmp_path / "x" / "metrics.csv")
    assert rows[-1]["update"] == "4"
    share = [float(row["stays"]) for row in rows if row["stays"] != "nan"]
    assert share
    assert all(0.25 <= s <= 1 for s in share)


def test_the_example_of_the_docs_conforms_and_keeps_the_hard_levels():
    import docs.examples.hard_levels as example

    agent = small_agent(PROBE)
    curriculum = example.Settings(share=0.5).build(PROBE, agent, 4)
    check_curriculum(curriculum, PROBE, jax.random.key(0), agent)
    code = [line for line in EXAMPLE.read_text().splitlines() if line.strip() and not line.startswith('"""')]
    assert len(code) < 45, "the simplest curriculum has grown"

"""A second agent, written from the `Agent` protocol alone, in the place of PPO: nothing asks for more than that."""

import dataclasses
from typing import Any

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.agents.base import Agent, TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.levels.accel import ACCEL
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.levels.sfl import SFL
from minimax_lib.playing.episodes import alone
from minimax_lib.playing.rollout import Rollout
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner
from tests.probes import Probe, ProbeLevel, action_for_observation

N_SHOWN, N_ACTIONS = Probe.observation_space.n, Probe.action_space.n


@dataclasses.dataclass(frozen=True)
class Tabular:
    """REINFORCE (Williams 1992) with a table of action preferences and one of values, by what is shown."""

    lr: float = 0.5
    gamma: float = 0.9
    gae_lambda: float = 1.0
    bootstrap_truncated: bool = False
    n_values: int = 1
    n_total_updates: int | None = None

    def check_batch(self, n_rows: int, n_steps: int) -> None:
        if n_rows < 2:
            raise ValueError(f"n_rows is {n_rows}: a table learns from at least 2")

    def init(self, key: jax.Array, obs: Any) -> TrainState:
        params = {"policy": jnp.zeros((N_SHOWN, N_ACTIONS)), "value": jnp.zeros(N_SHOWN)}
        return TrainState(params=params, opt_state=(), n_updates=jnp.zeros((), jnp.int32))

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        return ()

    def policy(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> tuple[Any, jax.Array, Any]:
        return distrax.Categorical(logits=params["policy"][obs]), params["value"][obs], carry

    def act(self, key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array) -> tuple:
        policy, value, carry = self.policy(params, obs, carry, first)
        action = policy.sample(seed=key)
        return action, policy.log_prob(action), value, carry

    def value(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> jax.Array:
        return params["value"][obs]

    def look(self, params: Any, run: Rollout) -> tuple[jax.Array, jax.Array]:
        return params["policy"][run.steps.obs], params["value"][run.steps.obs][..., None]

    def update(self, key: jax.Array, state: TrainState, run: Rollout) -> tuple[TrainState, dict[str, jax.Array]]:
        advantage, target = run.advantages(self.gamma, self.gae_lambda)

        def loss(params: Any) -> jax.Array:
            policy = distrax.Categorical(logits=params["policy"][run.steps.obs])
            errors = (params["value"][run.steps.obs] - target) ** 2
            return (0.5 * errors - policy.log_prob(run.steps.action) * advantage).mean()

        value, gradients = jax.value_and_grad(loss)(state.params)
        params = jax.tree.map(lambda x, dx: x - self.lr * dx, state.params, gradients)
        norm = jnp.sqrt(sum((dx**2).sum() for dx in jax.tree.leaves(gradients)))
        return state.replace(params=params, n_updates=state.n_updates + 1), {"loss": value, "grad_norm": norm}


@dataclasses.dataclass(frozen=True)
class Cued(Probe):
    """One level: an episode of one step shows a cue, and pays 1 for the action of its number, else -1."""

    def sample_level(self, key: jax.Array) -> ProbeLevel:
        return action_for_observation()


SMALL = {"n_parallel": 8, "n_steps": 4}
BUFFER = SMALL | {"capacity": 4, "min_fill": 0.25, "unique": False}
METHODS = {
    "DR": DR(**SMALL),
    "robust PLR by entropy": PLR(**BUFFER, score="policy_entropy"),
    "REPAIRED's score": PLR(**BUFFER, score="relative_regret", n_students=2, robust=False),
    "parallel PLR": PLR(**BUFFER, parallel=True),
    "SFL": SFL(**SMALL, every=2, n_scored=16, n_kept=4),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.deep] * (n != "DR")) for n in METHODS])
def test_an_agent_that_is_not_ppo_learns_in_every_curriculum(name):
    settings, agent = METHODS[name], Tabular()
    program = SeedRunner(trained_with(Cued(), AgentPop(agent, settings.n_students), settings), n_seeds=2)
    state, _ = program.run(program.init(0), 60)
    assert (np.asarray(state.students.n_updates) == 60).all()
    _, report = program.run(state, 80)
    assert (report.metrics["return"] > 0.8).all()  # 0 by chance


def test_it_can_be_evaluated_too():
    protocol_members = {name for name in vars(Agent) if not name.startswith("_")}
    assert protocol_members <= set(dir(Tabular()))
    params = {"policy": 20 * np.eye(N_SHOWN, N_ACTIONS, dtype=np.float32), "value": np.zeros(N_SHOWN, np.float32)}

    @jax.jit
    def returns(params):
        levels = jax.vmap(Cued().sample_level)(jax.random.split(jax.random.key(0), 16))
        return alone(Cued(), Tabular()).play(jax.random.key(1), (params,), levels).returns

    assert (np.asarray(returns(params)) == 1).all()


def test_what_the_agent_cannot_learn_from_is_refused_in_its_own_words():
    with pytest.raises(ValueError, match=r"^n_rows is 1: a table learns from at least 2$"):
        trained_with(Cued(), AgentPop(Tabular()), DR(n_parallel=1, n_steps=4))
    with pytest.raises(ValueError, match=r"'parameter_change' needs the method .* and Tabular has none"):
        trained_with(Cued(), AgentPop(Tabular()), PLR(**BUFFER, score="parameter_change"))
    with pytest.raises(ValueError, match=r"^model.n_values is 1: runner.score=value_disagreement needs 2$"):
        trained_with(Cued(), AgentPop(Tabular()), ACCEL(**BUFFER, score="value_disagreement", n_parents=2))

"""One seat of a parallel environment of PettingZoo as an environment of Gymnasium. Opponents sit in the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from pettingzoo.utils.env import ParallelEnv

from minimax_lib.portable.task_pettingzoo import check_parallel
from minimax_lib.portable.task_receiver import check_reserved

OPPONENT = "opponent"  # the option of reset
Policy = Callable[[Any], Any]  # gives the action for an observation


def as_opponent(agent: Any) -> dict[str, Any]:
    """The arguments of `reset` where a task is an opponent."""
    return {"options": {OPPONENT: agent}}


class OneSeat(gymnasium.Env):
    """The side of one agent, who learns, in `env`. All others play what `policy` makes of `options["opponent"]`.

    `policy(agent)` is called for each of them when an episode begins, with what the trainer's `load` gives of a copy.
    It returns a function from an observation to an action; what that function remembers lasts for the episode.

    The seat is drawn anew for every episode from `seats` (all), so that nobody learns to play on one side only. The
    seats must have the same spaces. An episode ends with the agent's own end. `info["progress"]` is then 1 if its
    return is higher than those of all others, 0.5 if it is equal to the best of them, and 0 otherwise.
    """

    def __init__(self, env: ParallelEnv, policy: Callable[[Any], Policy], seats: Sequence[Any] | None = None):
        check_parallel(env)
        self.env, self.policy = env, policy
        self.seats = list(env.possible_agents if seats is None else seats)
        if len(env.possible_agents) < 2:
            raise ValueError(f"{type(env).__name__} has one agent: opponents need a game for two or more")
        for seat in self.seats:
            if seat not in env.possible_agents:
                raise ValueError(f"seats has {seat!r}: it must be one of {list(env.possible_agents)}")
        self.action_space, self.observation_space = (space_of(each, self.seats) for each in spaces_of(env))
        self.metadata = dict(getattr(env, "metadata", {}))
        self.render_mode = getattr(env, "render_mode", None)
        self.seat: Any = None
        self._policies: dict[Any, Policy] = {}
        self._obs: dict[Any, Any] = {}  # what the others see
        self._returns: dict[Any, float] = {}

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode against `options["opponent"]`. All other options go to `env`."""
        super().reset(seed=seed)
        rest = dict(options or {})
        if OPPONENT not in rest:
            raise ValueError("reset without an opponent: give options['opponent'], or TaskReceiver(..., as_opponent)")
        agent = rest.pop(OPPONENT)
        self.seat = self.seats[int(self.np_random.integers(len(self.seats)))]
        # The game goes on with its own random numbers unless a seed is given, so it gets ours only then.
        obs, infos = self.env.reset(seed=seed, options=rest or None)
        if self.seat not in obs:
            raise ValueError(f"{self.seat!r} is not there when an episode begins: give the `seats` that are")
        others = [name for name in self.env.possible_agents if name != self.seat]
        self._policies = {name: self.policy(agent) for name in others}
        self._returns = dict.fromkeys(self.env.possible_agents, 0.0)
        self._obs = obs
        return obs[self.seat], self._info(infos)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """After the actions of all agents that play."""
        actions = {name: self._policies[name](self._obs[name]) for name in self.env.agents if name != self.seat}
        obs, rewards, terminated, truncated, infos = self.env.step(actions | {self.seat: action})
        for name, reward in rewards.items():
            self._returns[name] += float(reward)
        self._obs, info = obs, self._info(infos)
        ended = bool(terminated.get(self.seat, False)), bool(truncated.get(self.seat, False))
        if not self.env.agents and not any(ended):  # the game is over, whatever the flags say
            ended = (True, False)
        if any(ended):
            check_reserved(info, ("opponent_return",), "infos")
            best = max(x for name, x in self._returns.items() if name != self.seat)
            own = self._returns[self.seat]
            info |= {"progress": 1.0 if own > best else 0.5 if own == best else 0.0, "opponent_return": best}
        return obs[self.seat], rewards[self.seat], *ended, info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _info(self, infos: Mapping[Any, Any]) -> dict[str, Any]:
        return dict(infos.get(self.seat) or {}) | {"seat": self.seat}


def spaces_of(env: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return env.action_space, env.observation_space


def space_of(each: Callable[[Any], gymnasium.Space], seats: Sequence[Any]) -> gymnasium.Space:
    """The space that all seats have. ValueError if they differ."""
    first = each(seats[0])
    for seat in seats[1:]:
        if each(seat) != first:
            raise ValueError(
                f"{seats[0]!r} has {first}, and {seat!r} has {each(seat)}: the seats need the same spaces, or give one "
                f"of `seats`, such as seats=[{seats[0]!r}]"
            )
    return first

"""The runner `tasks`: its settings, and which task curriculum they make."""

import dataclasses
import functools
import math
from typing import Annotated, Any, Literal

import jax
import numpy as np

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.score_checks import check_score
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.curricula.settings import MOST_EPISODES, QueuedRollouts
from minimax_lib.curricula.tasks.agents import AgentTasks
from minimax_lib.curricula.tasks.evaluation import LifeEvaluation, TaskEvaluation
from minimax_lib.curricula.tasks.levels_and_tasks import LevelsAndTasks
from minimax_lib.curricula.tasks.listed import Tasks, listed_levels
from minimax_lib.curricula.tasks.scoring import AttemptScoring
from minimax_lib.envs.base import Environment
from minimax_lib.envs.levels import task_name
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.core import episodes_needed
from minimax_lib.tasks.registry import TASK_CURRICULA, ListedPLRSettings, UniformSettings, core_of

EVERY = 25
# Steps that are only played, for each step that is learnt from, so that they cost a fifth as much. With two epochs, a
# step of training is some seven passes of the network; measured with Neural MMO, it costs as much as 5.8 played ones.
PLAYED = 5.5 / 5
MOST_BYTES = 2**28  # of a table of levels: it is a constant of the compiled program


@dataclasses.dataclass(frozen=True)
class TaskSettings(AttemptScoring):
    """A fixed list of levels, from which a task curriculum draws one for every episode."""

    core: Annotated[Any, TASK_CURRICULA] = ListedPLRSettings()
    """What decides which levels come next."""
    n_levels: int = 4000
    """Levels of the list. Level i is drawn with seed i, and is the same in every run. With the cores plr, tscl and
    uniform, each of several devices has a part of the list."""
    share: str = ""
    """A level metric of whole numbers, such as difficulty. The weight of the levels of each value is reported."""
    evaluate_every: int | None = None
    """Updates between two evaluations of the tasks. Only for a core that decides by how often each task is solved.
    none: 25. But where agents have their own tasks, as many as keep evaluations to a fifth of what training costs."""
    evaluate_episodes: int = 4
    """Whole episodes on each task in an evaluation. Their steps count as environment steps."""
    evaluate_where: str = ""
    """A level metric. Only tasks where it is above 0 are evaluated; the others count as never solved. Empty: all."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_levels < 2**31:
            raise ValueError(f"runner.n_levels is {self.n_levels}: it must be at least 1 and less than {2**31}")
        for name in ("evaluate_every", "evaluate_episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"runner.{name} is {value}: it must be at least 1")
        if self.evaluate_episodes > MOST_EPISODES:
            raise ValueError(
                f"runner.evaluate_episodes is {self.evaluate_episodes}: it must be at most {MOST_EPISODES}"
            )
        super().__post_init__()

    @property
    def divided(self) -> tuple[str, ...]:
        """Each device has a part of the list, if the core can do with a part."""
        return ("n_levels",) if self.core.divides else ()


@dataclasses.dataclass(frozen=True)
class TasksMethod(QueuedRollouts, TaskSettings):
    """A fixed list of levels. At the end of every episode, a task curriculum draws the next one.

    Where each agent of the environment has its own task (`with_tasks`), it draws those in place of levels.
    """

    task_of: Literal["agent", "world", "level"] = "agent"
    """Where agents have their own tasks: each agent is drawn one, all agents of a world are drawn the same one, or the
    level is drawn, and its agents have the tasks that it gives them."""
    levels: Annotated[Any, TASK_CURRICULA] = UniformSettings()
    """Where agents or worlds are drawn a task: what decides which level of the list a world is on."""
    level_rate: Literal["solved", "best"] = "solved"
    """Where several agents play a level, and a core needs its rate of success. solved: the share of the agents that
    solve it. best: the progress of the best agent of a world (as in Syllabus's experiments with Neural MMO)."""

    @property
    def n_listed(self) -> int:  # type: ignore[override]
        """Levels of the list, of all devices together."""
        return self.n_levels

    @property
    def divided(self) -> tuple[str, ...]:
        """See `TaskSettings.divided`. Where levels are chosen too, all devices have the whole list."""
        return () if self._chooses_levels else super().divided

    @property
    def _chooses_levels(self) -> bool:
        return self.levels != UniformSettings()

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        self._check_list(env)
        of_agents = self._is_of_agents(env)
        if self.level_rate == "best" and (not env.multi_agent or (of_agents and not self._chooses_levels)):
            why = "no level is chosen here" if of_agents else f"{type(env).__name__} has one agent"
            raise ValueError(f"runner.level_rate is best: it must be solved, since {why}")
        if of_agents:
            return self._of_agents(env, agent, n_rows)
        if self.task_of == "world":
            raise ValueError(f"runner.task_of is {self.task_of}: the agents of {type(env).__name__} have no own tasks")
        if self._chooses_levels:
            raise ValueError(
                f"runner.levels is {TASK_CURRICULA.name_of(type(self.levels))}: it must be uniform, since levels are "
                "what runner.core draws here"
            )
        # Where agents have tasks, levels have only numbers: the names are those of tasks.
        name = str if env.with_tasks else functools.partial(task_name, env)
        return self._tasks("core", self.n_levels, name, env, agent, n_rows)

    def _tasks(self, setting: str, n_tasks: int, name: Any, env: Any, agent: AgentPop, n_rows: int) -> Tasks:
        """What `setting` (core or levels) draws out of so many tasks."""
        settings = getattr(self, setting)
        core = core_of(settings, n_tasks, name)
        n_needed, of_levels = episodes_needed(core), dataclasses.replace(self, task_of="level")
        planner = of_levels if setting == "levels" else self
        if self.level_rate == "best" and not n_needed and not planner._is_of_agents(env):
            name = TASK_CURRICULA.name_of(type(settings))
            raise ValueError(f"runner.level_rate is best: it must be solved, since {name} reads no rates of success")
        return Tasks(
            env,
            core,
            n_rows,
            self.n_steps,
            score=scored_by(f"runner.{setting}.score", settings.score, env, agent) if core.reads_scores else None,
            scoring=self.scoring,
            share=self.share,
            divided=settings.divides,
            evaluation=planner._evaluation(env, n_tasks, n_rows, n_needed) if n_needed else None,
            n_agents=env.n_agents,
        )

    def _is_of_agents(self, env: Any) -> bool:
        """Whether the tasks that are drawn are those of agents. Else they are levels."""
        return bool(env.with_tasks) and self.task_of != "level"

    def _of_agents(self, env: Any, agent: AgentPop, n_rows: int) -> AgentTasks | LevelsAndTasks:
        """For agents with their own tasks; ValueError for a setting that means nothing there."""
        for name in ("share", "evaluate_where"):
            if getattr(self, name):
                raise ValueError(
                    f"runner.{name} is {getattr(self, name)!r}: it must be empty, as the tasks of "
                    f"{type(env).__name__} belong to its agents, and have no level metrics"
                )
        tasks = self._tasks("core", env.n_tasks, functools.partial(task_name, env), env, agent, n_rows)
        shared = {field.name: getattr(tasks, field.name) for field in dataclasses.fields(tasks)} | {"divided": False}
        in_common, divided = self.task_of == "world", bool(self.divided)
        of_agents = AgentTasks(**shared, n_levels=self.n_levels, levels_divided=divided, in_common=in_common)
        if not self._chooses_levels:
            return of_agents
        try:
            levels = self._tasks("levels", self.n_levels, str, env, agent, n_rows)
        except ValueError as error:  # a core knows its settings as those of runner.core
            raise ValueError(str(error).replace("runner.core.", "runner.levels.")) from error
        return LevelsAndTasks(dataclasses.replace(levels, divided=False), of_agents)

    def _evaluation(self, env: Any, n_tasks: int, n_rows: int, n_needed: int) -> TaskEvaluation:
        if self.evaluate_episodes < n_needed:
            raise ValueError(
                f"runner.evaluate_episodes is {self.evaluate_episodes}: with fewer than {n_needed}, this core "
                "cannot tell tasks apart"
            )
        measured: tuple[int, ...] = tuple(range(n_tasks))
        if self.evaluate_where:
            _, facts = listed_levels(env, self.n_levels)
            measured = tuple(int(i) for i in np.flatnonzero(facts[self.evaluate_where] > 0))
            if not measured:
                where = f"runner.evaluate_where is {self.evaluate_where}"
                raise ValueError(f"{where}: it is above 0 on none of the {self.n_levels} levels")
        every, of_agents, in_common = self.evaluate_every or EVERY, self._is_of_agents(env), self.task_of == "world"
        n_worlds = len(measured) * self.evaluate_episodes
        if of_agents:
            n_worlds = LifeEvaluation.n_worlds(len(measured), self.evaluate_episodes, env.n_agents, in_common)
        if env.with_tasks and not self.evaluate_every:
            every = max(EVERY, math.ceil(n_worlds * env.max_steps / (PLAYED * n_rows * self.n_steps)))
        if of_agents:
            return LifeEvaluation(every, self.evaluate_episodes, measured, min(n_rows, n_worlds), env, in_common)
        best_of = env.n_agents if self.level_rate == "best" else 1
        return TaskEvaluation(every, self.evaluate_episodes, measured, min(n_rows, len(measured)), best_of=best_of)

    def _check_list(self, env: Environment) -> None:
        level = jax.eval_shape(env.sample_level, jax.random.key(0))
        n_bytes = self.n_levels * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(level))
        if n_bytes > MOST_BYTES:
            most = MOST_BYTES * self.n_levels // n_bytes
            raise ValueError(f"runner.n_levels is {self.n_levels}: it must be at most {most} for levels of this size")
        known = list(jax.eval_shape(env.level_metrics, level))
        for name in ("share", "evaluate_where"):
            if getattr(self, name) and getattr(self, name) not in known:
                raise unknown_name(f"runner.{name}", getattr(self, name), known)


def scored_by(setting: str, name: str, env: Environment, agent: AgentPop) -> Score:
    """The score called `name`, the value of `setting`. ValueError if it cannot be computed step by step."""
    check_score(setting, name, env.action_space, agent.n, agent.n_values)
    score = SCORES[name]
    if not _is_of_attempts(score):
        able = [other for other in SCORES.names() if _is_of_attempts(SCORES[other])]
        raise ValueError(
            f"{setting} is {name!r}: it must be a mean over the steps of one attempt, choose from {', '.join(able)}"
        )
    return score


def _is_of_attempts(score: Score) -> bool:
    """Whether the score can be computed of a single attempt."""
    return score.quantity is not None and (score.adds_best or not score.mixes_scales)

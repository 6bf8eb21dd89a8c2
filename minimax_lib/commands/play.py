"""The command `minimax-play`: mazes in a terminal, to walk through or to watch a trained agent in."""

import dataclasses
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from minimax_lib.commands.keyboard import (
    BELOW,
    END_OF_LINE,
    HOME,
    LEAVE,
    LETTERS,
    ReadKey,
    Write,
    check_terminal,
    has_colours,
    terminal,
)
from minimax_lib.commands.status import carried_out
from minimax_lib.config.play import PlaySettings, parse
from minimax_lib.envs.base import Environment, EnvState, Level, progress_of
from minimax_lib.envs.registry import make_held_out
from minimax_lib.envs.terminal import Cell, painted, window
from minimax_lib.envs.wrappers import unwrapped, unwrapped_state
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.experiment.compilation import keep_compiled_programs
from minimax_lib.jax_settings import check_jax
from minimax_lib.playing.crowds import AnyEpisode, CrowdEpisode
from minimax_lib.store.loaded import LoadedRun

GAP = 2  # cells between the map and the view
FASTER = 1.5


class Game(Protocol):
    """What is shown, and what keys do to it."""

    show_map: bool

    def press(self, key: str) -> None:
        """Does what the key means; nothing, for a key that means nothing."""
        ...

    def tick(self) -> None:
        """Goes on without a key, `wait` seconds after the last time."""
        ...

    @property
    def wait(self) -> float | None:
        """Seconds until it goes on; None if it waits for a key."""
        ...

    @property
    def moment(self) -> tuple[Environment, EnvState]: ...

    @property
    def title(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def help(self) -> str: ...


@dataclasses.dataclass
class Walk:
    """A person walks."""

    env: Any  # an environment that has `scene`
    draw_level: Callable[[int], tuple[str, Level]]  # (name, level) of the i-th level
    seed: int
    show_map: bool = True
    number: int = 0

    def __post_init__(self) -> None:
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)
        self._open()

    def _open(self) -> None:
        self.name, self.level = self.draw_level(self.number)
        self._restart()

    def _restart(self) -> None:
        self._key = jax.random.fold_in(jax.random.key(self.seed), self.number)
        self.state, self.ts = self._reset(self._key, self.level)
        self.steps, self.total = 0, 0.0
        # A suite's environment has the largest limit of its levels. Some levels have their own.
        self.max_steps = self.env.scene(self.state).max_steps or self.env.max_steps

    @property
    def over(self) -> bool:
        return bool(self.ts.done)

    def press(self, key: str) -> None:
        actions = self.env.keys
        if key == "n":
            self.number += 1
            self._open()
        elif key == "r":
            self._restart()
        elif key == "m":
            self.show_map = not self.show_map
        elif key in actions and not self.over:
            self.steps += 1
            step_key = jax.random.fold_in(self._key, self.steps)
            self.state, self.ts = self._step(step_key, self.state, actions[key])
            self.total += float(self.ts.reward)

    def tick(self) -> None: ...

    wait = None

    @property
    def moment(self) -> tuple[Environment, EnvState]:
        return self.env, self.state

    @property
    def title(self) -> str:
        return self.name

    @property
    def status(self) -> str:
        steps = f"step {self.steps} of {self.max_steps}"
        if not self.over:
            return steps
        end = "solved" if progress_of(self.ts, jnp.float32(self.total)) >= 1 else "not solved"
        return f"{steps}: {end}, return {self.total:.2f}. n: next level, r: once more"

    help = "q: leave   arrows or w a d: walk and turn   n: next level   r: restart   m: map"


@dataclasses.dataclass
class Watch:
    """A trained agent walks. Its episode is played beforehand, so that one can go back in it."""

    play: Callable[[int], tuple[str, AnyEpisode]]  # (name, episode) of the i-th level
    speed: float
    show_map: bool = True
    number: int = 0
    paused: bool = False

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        self.name, self.episode = self.play(self.number)
        self.time = 0

    @property
    def over(self) -> bool:
        return self.time >= self.episode.length

    def press(self, key: str) -> None:
        if key == "n":
            self.number += 1
            self._open()
        elif key == "f" and isinstance(self.episode, CrowdEpisode):
            self.episode = self.episode.following((self.episode.followed + 1) % len(self.episode.progress))
        elif key == "r":
            self.time = 0
        elif key == "m":
            self.show_map = not self.show_map
        elif key == " ":
            self.paused = not self.paused
        elif key in ("right", "left"):
            # Who goes step by step does not want the agent to run on.
            self.paused = True
            self.time = min(max(self.time + (1 if key == "right" else -1), 0), self.episode.length)
        elif key in ("up", "+"):
            self.speed = min(self.speed * FASTER, 1000.0)
        elif key in ("down", "-"):
            self.speed = max(self.speed / FASTER, 0.1)

    def tick(self) -> None:
        self.time = min(self.time + 1, self.episode.length)

    @property
    def wait(self) -> float | None:
        return None if self.paused or self.over else 1 / self.speed

    @property
    def moment(self) -> tuple[Environment, EnvState]:
        env, state = self.episode.env, jax.tree.map(lambda x: x[self.time], self.episode.states)
        return unwrapped(env), unwrapped_state(state)

    @property
    def title(self) -> str:
        return self.name

    @property
    def status(self) -> str:
        steps = f"step {self.time} of {self.episode.length}"
        if self.over:
            return f"{steps}: {self.episode.end}, return {self.episode.episode_return:.2f}. n: next level, r: once more"
        return f"{steps}, paused" if self.paused else f"{steps}, {self.speed:.3g} steps/s"

    @property
    def help(self) -> str:
        more = "   f: follow another agent" if isinstance(self.episode, CrowdEpisode) else ""
        return f"q: leave   space: pause   left, right: step   up, down: speed   n: next   r: restart   m: map{more}"


# ---------------------------------------------------------------------------------------------------------- the screen


def screen(game: Game, columns: int, lines: int, colours: bool) -> str:
    """What a terminal of that size shows."""
    env, state = game.moment
    assert env.scene
    scene = env.scene(state)
    blank = Cell("  ", "  ")
    keys = [scene.keys] if scene.keys and isinstance(game, Walk) else []
    # Lines of text, and an empty one between them and the picture.
    height, view_width = max(1, lines - 5 - len(keys)), len(scene.view[0])
    width = max(1, columns // 2 - view_width - GAP)
    left = window(scene.whole, scene.place, height, width) if game.show_map else []
    n_rows = min(height, max(len(left), len(scene.view)))
    above = (n_rows - len(scene.view)) // 2
    text = []
    for i in range(n_rows):
        own = left[i] if i < len(left) else [blank] * (len(left[0]) if left else 0)
        seen = scene.view[i - above] if 0 <= i - above < len(scene.view) else []
        text.append("  ".join(painted([part], colours)[0] for part in (own, seen) if part))
    title = f"{game.title}: {scene.task}" if scene.task else game.title
    whole = [title, "", *text, "", game.status, *keys, game.help]
    rows = [line if "\x1b" in line else line[: columns - 1] for line in whole]
    return HOME + "".join(f"{row}{END_OF_LINE}\r\n" for row in rows[:-1]) + rows[-1] + END_OF_LINE + BELOW


def show(game: Game, read_key: ReadKey, write: Write, colours: bool = True) -> None:
    """Shows the game until a key says to leave. Nothing else ends it but the end of the keys' source (EOFError)."""
    while True:
        size = shutil.get_terminal_size()
        write(screen(game, size.columns, size.lines, colours))
        key = read_key(game.wait)
        if key in LEAVE:
            return
        if key is None:
            game.tick()
        else:
            game.press(LETTERS.get(key, key) if isinstance(game, Walk) else key)


# --------------------------------------------------------------------------------------------------------- the command


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. A request that cannot be met is refused with one line on stderr and status 2."""
    return carried_out(argv, prepared, play)


def prepared(words: Sequence[str]) -> tuple[PlaySettings, Callable[[], Game]]:
    """(what is asked for, what makes the game); ValueError in one line."""
    settings = parse(words)
    check_terminal()
    check_jax()
    return settings, watched(settings) if settings.run else walked(settings)


def play(request: tuple[PlaySettings, Callable[[], Game]]) -> int:
    """Makes the game and shows it until the user leaves; the exit status."""
    settings, make = request
    keep_compiled_programs(settings.compilation_cache)
    print("a moment ...", end="\r", flush=True)
    game = make()
    print(end=f"\r{END_OF_LINE}")
    with terminal() as (read_key, write):
        show(game, read_key, write, has_colours())
    return 0


def walked(settings: PlaySettings) -> Callable[[], Walk]:
    """What makes the walk; ValueError where there is no such held-out task, or no way to show the environment."""
    held_out = make_held_out(settings.env, settings.task) if settings.task else None
    env = unwrapped(settings.env if held_out is None else held_out.env)
    check_playable(env)
    if env.n_agents > 2:
        raise ValueError(f"nobody walks alone in {type(env).__name__}: --run shows a trained agent in all its seats")

    def draw_level(number: int) -> tuple[str, Level]:
        key = jax.random.fold_in(jax.random.key(settings.seed), number)
        if held_out is None:
            return f"level {number} of seed {settings.seed}", jax.jit(env.sample_level)(key)
        place = number % len(held_out.names)
        level = jax.tree.map(lambda x: x[place, 0], jax.jit(lambda key: held_out.sample(key, 1))(key))
        return held_out.names[place], level

    return lambda: Walk(env, draw_level, settings.seed, settings.map)


def watched(settings: PlaySettings) -> Callable[[], Watch]:
    """What makes the agent's walk; ValueError where there is no such run or held-out task, or no way to show it."""
    from minimax_lib.store.loaded import opened_run
    from minimax_lib.store.saved import find_run

    run = find_run(Path(settings.run), settings.checkpoint, settings.plugins is not None)
    tasks = tasks_of_run(settings.task, run.config.runner)
    names = make_held_out(run.config.env, tasks).names if tasks else ()
    check_playable(unwrapped(run.config.env))
    n_students = run.config.runner.n_students
    if settings.student >= n_students:
        raise ValueError(f"student is {settings.student}: {settings.run} has {n_students}, counted from 0")

    def make() -> Watch:
        loaded: LoadedRun = opened_run(run).of(student=settings.student)
        about = f"{settings.run}, update {loaded.update:,}: "

        def play(number: int) -> tuple[str, AnyEpisode]:
            key = jax.random.fold_in(jax.random.key(settings.seed), number)
            if names:
                # All at once: the program is compiled once.
                name = names[number % len(names)]
                return about + name, loaded.play_tasks(names, key, settings.greedy)[name]
            return f"{about}level {number} of seed {settings.seed}", loaded.play(None, key, settings.greedy)

        return Watch(play, settings.speed, settings.map)

    return make


def check_playable(env: Environment) -> None:
    """ValueError for an environment that cannot be shown as text."""
    if env.scene is None:
        raise ValueError(f"{type(env).__name__} cannot be shown in a terminal: minimax-draw writes pictures and films")


if __name__ == "__main__":
    from minimax_lib.commands import launch

    sys.exit(launch.play())

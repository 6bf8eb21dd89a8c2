"""Every flag that there is, and the page about them: `docs/flags.md`."""

import dataclasses
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from minimax_lib.config import play, sweep, sweep_command
from minimax_lib.config.help import Flag, sections
from minimax_lib.config.listing import first_line
from minimax_lib.config.train import Config
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.envs.grid.generators.registry import FAMILIES
from minimax_lib.envs.registry import AUTO, ENVS, TEACHERS
from minimax_lib.models.registry import MODELS
from minimax_lib.registry import Registry
from minimax_lib.tasks.box_registry import BOX_CURRICULA
from minimax_lib.tasks.registry import TASK_CURRICULA

COMMAND = "python -m docs.make.flags > docs/flags.md"
INTRODUCTION = """\
Every flag of every command, with its default. `minimax-train --help` shows the same in a terminal, for what is chosen:
`minimax-train --config maze/accel --help` has the values of that configuration.

* A flag is a setting of an experiment file: `--ppo.lr 3e-4` is `ppo: {lr: 3e-4}`. Underscores may stand for hyphens.
* Without a value, `--x` means `--x true`. `--no-x` means `--x false`; in a group it is written `--env.no-x`.
* Flags override files. Later files override earlier ones.
* `--env`, `--model`, `--runner` and some others choose by name. Each name has its own settings, which are listed
  under that name.
* Your own environments, models and curricula add flags: `minimax-train --plugins MODULE --help`.
* `--help` is a flag of every command. `minimax-train` also has `--config FILE ...` (files of settings, or names of
  shipped ones) and `--list` (the names that there are to choose from)."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """A group of settings that is chosen by name."""

    heading: str
    path: str  # of its flag
    registry: Registry[Any]
    text: str


CHOICES = (
    Choice("Environments", "env", ENVS, "The environment and the levels it draws: `--env NAME`."),
    Choice(
        "Families of levels",
        "env.family",
        FAMILIES,
        "What draws the random levels of `--env GridWorld`: `--env.family NAME`.",
    ),
    Choice(
        "Models",
        "model",
        MODELS,
        "The students' network: `--model NAME`. A teacher has its own network, with the same settings under "
        "`--runner.teacher.model` or `--runner.generator.model`.",
    ),
    Choice("Runners", "runner", RUNNERS, "The method: `--runner NAME`. [Methods](methods.md) explains them."),
    Choice(
        "Generators",
        "runner.generator",
        GENERATORS,
        "Where `--runner plr` and `--runner accel` get new levels from: `--runner.generator NAME`.",
    ),
    Choice(
        "Task curricula",
        "runner.core",
        TASK_CURRICULA,
        "What decides which levels of the list of `--runner tasks` come next: `--runner.core NAME`. "
        "[Task curricula](tasks.md) explains them. `stratified` has another one inside, whose flags begin with "
        "`--runner.core.inner`.",
    ),
    Choice(
        "Curricula over a box",
        "runner.core",
        BOX_CURRICULA,
        "What decides where in the box the next levels of `--runner box` are: `--runner.core NAME`. "
        "[Task curricula](tasks.md#a-box-of-levels) explains them.",
    ),
    Choice(
        "Designs of teachers",
        "runner.teacher.design",
        TEACHERS,
        "The environment in which a teacher designs levels. By default it is the one that is registered with the "
        "students' environment. With `--runner.generator teacher` its flags begin with `--runner.generator.design`.",
    ),
)
# Settings of a group that is chosen by name are listed under that name, not again where the group is part of another.
PARTS = ("core", "inner", "family", "generator", "design", "model")
RUNS = ("evaluate", "plot", "report", "draw")  # commands that must be given runs


def page() -> str:
    """The text of `docs/flags.md`."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Flags"
    yield ""
    yield f"<!-- Made by `{COMMAND}`: change the source, not this page. -->"
    yield ""
    yield INTRODUCTION
    yield ""
    yield "## minimax-train"
    for title, flags in groups(Config(), "The run", "", leave_out=[choice.path for choice in CHOICES]):
        yield from ("", f"### {title.partition(': ')[0]}", "", *_table(flags))
    for choice in CHOICES:
        yield from ("", f"## {choice.heading}", "", choice.text)
        for name in choice.registry.names():
            if name != AUTO:
                yield from _chosen(choice, name)
    for command, parts in commands().items():
        yield from ("", f"## {command}", "", *_table(parts))
    yield ""


def _chosen(choice: Choice, name: str) -> Iterator[str]:
    settings = choice.registry[name]()
    yield from ("", f"### --{choice.path} {name}", "", first_line(type(settings)))
    parts = [f"{path}{part}" for path in (f"{choice.path}.", f"{choice.path}.teacher.") for part in PARTS]
    flags = [flag for _, flags in groups(settings, "", f"{choice.path}.", parts) for flag in flags]
    yield from ("", *_table(flags)) if flags else ("", "It has no settings.")


def groups(settings: Any, title: str, path: str, leave_out: Sequence[str]) -> Iterator[tuple[str, Sequence[Flag]]]:
    """(title, flags) of `settings` and of the groups in it, but for the groups that are called as in `leave_out`."""
    for heading, flags in sections(settings, title, {}, path):
        group = flags[-1].name.removeprefix("--").rpartition(".")[0]
        if not any(group == name or group.startswith(f"{name}.") for name in leave_out if name != path.rstrip(".")):
            yield heading, flags


def commands() -> dict[str, list[Flag]]:
    """The flags of the other commands."""
    parts = {name: [_of_command(name)(run=("RUN",))] for name in RUNS} | {"play": [play.PlaySettings()]}
    parts["sweep"] = [sweep_command.Command(), sweep.SweepKeys()]
    return {f"minimax-{name}": [flag for group in found for flag in _flags(group)] for name, found in parts.items()}


def _of_command(name: str) -> Any:
    """The class of the settings of `minimax-<name>`."""
    return getattr(importlib.import_module(f"minimax_lib.config.{name}"), f"{name.title()}Settings")


def _flags(settings: Any) -> list[Flag]:
    return [flag for _, flags in groups(settings, "", "", leave_out=["env"]) for flag in flags]


def _table(flags: Sequence[Flag]) -> Iterator[str]:
    yield "| flag | default | meaning |"
    yield "|---|---|---|"
    for flag in flags:
        meaning, _, default = flag.meaning.rpartition(" (default: ")
        default = default.removesuffix(")")
        shown = "must be given" if default == "RUN" else default if default in ("empty", "none") else f"`{default}`"
        values = f" {flag.values}" if flag.values else ""
        yield f"| `{flag.name}{values.replace('|', ' or ')}` | {shown} | {_plain(meaning)} |"


def _plain(text: str) -> str:
    """`text` as it can stand in a cell of a table."""
    return text.replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(page(), end="")

"""The command `minimax-draw`: pictures of levels and episodes, from the checkpoints of runs."""

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from minimax_lib.commands.status import carried_out, nothing_drawn, say, without_sweeps
from minimax_lib.config.draw import ALL, LATEST, WHAT, DrawSettings, parse
from minimax_lib.config.shipped import located_run, shipped_agents
from minimax_lib.config.train import import_plugins
from minimax_lib.envs.base import Environment
from minimax_lib.envs.drawing import same_size, stacked
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.experiment.compilation import keep_compiled_programs
from minimax_lib.jax_settings import check_jax
from minimax_lib.messages import one_line
from minimax_lib.pictures import films, galleries
from minimax_lib.pictures.output import FigureFolder
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import RunFolder, check_is_run
from minimax_lib.store.loaded import LoadedRun, opened_run
from minimax_lib.store.saved import Run, find_run

RECORD = ".minimax-draw.json"
EPISODE_FPS, OTHER_FPS = 10.0, 1.0
SHOWN = 2  # episodes side by side in a film


Prepared = tuple[DrawSettings, dict[str, list[Run]]]  # (what is asked for, the checkpoints of each run by its name)


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. A request that cannot be met is refused with one line on stderr and status 2.

    A picture that a run does not have is a line; the others are drawn. The status is 1 if there is none.
    """
    return carried_out(argv, prepared, draw_all)


def prepared(words: Sequence[str]) -> Prepared:
    """The request, in which all has been checked; ValueError in one line."""
    settings = parse(words)
    check_formats(settings)
    import_plugins(settings.plugins or ())
    check_jax()
    runs = [checkpoints_of(Path(folder), settings) for folder in without_sweeps(settings.run)]
    for run in runs:
        check_run(settings, run[0])
    names = names_of([run[0].folder.path for run in runs])
    return settings, dict(zip(names, runs, strict=True))


def draw_all(request: Prepared) -> int:
    """Draws what is asked for of every run; the exit status."""
    settings, runs = request
    keep_compiled_programs(settings.compilation_cache)
    drawn = [draw(settings, checkpoints, name) for name, checkpoints in runs.items()]
    return 0 if any(drawn) else nothing_drawn()


def check_formats(settings: DrawSettings) -> None:
    """ValueError, with what to install, where a film cannot be written."""
    for kind in settings.format:
        if kind != "png":
            films.check_film(Path(f"film.{kind}"), settings.fps or EPISODE_FPS)


def checkpoints_of(folder: Path, settings: DrawSettings) -> list[Run]:
    """The run at each of the checkpoints that are asked for, the oldest first; ValueError if there is none of them."""
    folder = located_run(folder)
    check_is_run(folder, shipped_agents())
    given = settings.plugins is not None
    updates: set[int] = set()
    for word in settings.checkpoints:
        if word == ALL:
            updates |= set(saved_updates(RunFolder(folder).checkpoints))
        elif word != LATEST:
            updates.add(int(word))
    runs = [find_run(folder, update, given) for update in sorted(updates)]
    if LATEST in settings.checkpoints and updates != set(saved_updates(RunFolder(folder).checkpoints)):
        newest = find_run(folder, "latest", given)
        runs += [newest] if max(saved_updates(newest.folder.checkpoints), default=None) not in updates else []
    return runs or [find_run(folder, "latest", given)]


def check_run(settings: DrawSettings, run: Run) -> None:
    """ValueError where the run lacks the seed, the student or the held-out tasks, or where nothing draws its levels."""
    path = run.folder.path
    env: Environment = run.config.env
    if env.draw_episodes is None:
        raise ValueError(f"{path} cannot be drawn: {type(env).__name__} has no method to draw its episodes")
    if settings.seed is not None and settings.seed not in run.seeds:
        raise ValueError(f"seed is {settings.seed}: {path} has {', '.join(map(str, run.seeds))}")
    n_students = run.config.runner.n_students
    if not 0 <= settings.student < n_students:
        raise ValueError(f"student is {settings.student}: {path} has {n_students}, counted from 0")
    if "episodes" in settings.what:
        films.tasks_to_show(env, tasks_of_run(settings.tasks, run.config.runner))


def names_of(folders: Sequence[Path]) -> list[str]:
    """A name for each run, which its files begin with: that of its folder; with that of the folder above if need be."""
    paths = [folder.resolve() for folder in folders]
    for i, path in enumerate(paths):
        if path in paths[:i]:
            raise ValueError(f"run {str(folders[i])!r} is given twice: give it once")
    short = [path.name for path in paths]
    names = [path.name if short.count(path.name) == 1 else f"{path.parent.name}-{path.name}" for path in paths]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"two runs are called {name}: draw them one after another")
    return names


def draw(settings: DrawSettings, checkpoints: Sequence[Run], name: str) -> bool:
    """Whether something was drawn of a run. Says of each picture where it is, or why there is none."""
    folder = FigureFolder(Path(settings.out), RECORD)
    of_all: dict[tuple[str, str], list[np.ndarray]] = {}  # what goes through all checkpoints, by kind and format
    missing: dict[str, str] = {}
    n_written = 0
    for run in checkpoints:
        loaded = opened_run(run).of(settings.seed, settings.student)
        for what in (what for what in WHAT if what in settings.what):
            try:
                for kind in dict.fromkeys(settings.format):
                    pictures = DRAWN[what](settings, loaded, kind != "png")
                    if (what, kind) in BY_CHECKPOINT:
                        write(folder, f"{name}-{what}-{loaded.update}", kind, pictures, fps_of(settings, what))
                        n_written += 1
                    else:
                        of_all.setdefault((what, kind), []).extend(pictures)
            except galleries.NotThere as error:
                missing[what] = one_line(error)
    for (what, kind), pictures in of_all.items():
        one = [stacked(pictures)] if kind == "png" else pictures
        write(folder, f"{name}-{what}", kind, one, fps_of(settings, what))
    for what, why in missing.items():
        say(f"not drawn: {what}: {why}")
    return bool(n_written or of_all)


def write(folder: FigureFolder, stem: str, kind: str, pictures: Sequence[np.ndarray], fps: float) -> None:
    """Writes a picture, or the frames of a film, and says where it is."""
    content = png_bytes(pictures[0]) if kind == "png" else films.film_bytes(same_size(pictures), f".{kind}", fps)
    (path,) = folder.write(stem, {kind: content})
    say(f"written: {path}")


def png_bytes(picture: np.ndarray) -> bytes:
    """The picture as a PNG."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "png", optimize=True)
    return file.getvalue()


def fps_of(settings: DrawSettings, what: str) -> float:
    """Frames of a film in a second."""
    return settings.fps or (EPISODE_FPS if what == "episodes" else OTHER_FPS)


# ------------------------------------------------------------------------------------------------- what can be drawn

# Each gives the picture of a checkpoint; of a film, its frames.
Draw = Callable[[DrawSettings, LoadedRun, bool], list[np.ndarray]]


def _best(settings: DrawSettings, run: LoadedRun, film: bool) -> list[np.ndarray]:
    return [galleries.best_levels(run, settings.n_levels, settings.columns)]


def _sources(settings: DrawSettings, run: LoadedRun, film: bool) -> list[np.ndarray]:
    return [galleries.sources(run, settings.columns)]


def _designs(settings: DrawSettings, run: LoadedRun, film: bool) -> list[np.ndarray]:
    return [galleries.designs([run], settings.columns)]


def _lineage(settings: DrawSettings, run: LoadedRun, film: bool) -> list[np.ndarray]:
    if not film:
        return [galleries.lineages(run, columns=max(settings.columns, 2))]
    best = galleries.with_parents(run)[0]
    return [run.draw(galleries.one(level), [words], columns=1) for level, words in galleries.lineage(run, best)]


def _episodes(settings: DrawSettings, run: LoadedRun, film: bool) -> list[np.ndarray]:
    tasks = films.tasks_to_show(run.env, tasks_of_run(settings.tasks, run.config.runner))
    episodes = run.play_tasks(tasks, greedy=settings.greedy)
    if not film:
        return [films.ways(episodes)]
    captions = [films.told(name, episode) for name, episode in episodes.items()]
    return films.film(list(episodes.values()), captions, columns=SHOWN)


DRAWN: dict[str, Draw] = {
    "best": _best,
    "sources": _sources,
    "lineage": _lineage,
    "designs": _designs,
    "episodes": _episodes,
}
# These have a file for each checkpoint. The others have one, which goes through all checkpoints.
BY_CHECKPOINT = {
    *((what, "png") for what in WHAT if what != "designs"),
    *((what, kind) for what in ("lineage", "episodes") for kind in ("gif", "mp4")),
}


if __name__ == "__main__":
    from minimax_lib.commands import launch

    sys.exit(launch.draw())

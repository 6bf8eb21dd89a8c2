"""Pictures of a run under way: its levels and its agent, drawn in the background."""

import io
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.config import Config
from minimax_lib.envs.registry import make_held_out
from minimax_lib.messages import one_line
from minimax_lib.runners import hosts
from minimax_lib.runners.build import mesh_of
from minimax_lib.runners.training import RunnerState
from minimax_lib.store.files import write_atomically
from minimax_lib.store.folder import RunFolder

FOLDER = "levels"  # in the run's folder
MOST_TASKS = 4  # of which an episode is drawn

Pictures = Mapping[str, np.ndarray]  # u8[H, W, 3] by name


class LevelPictures:
    """Draws what `minimax-draw` draws, of the first seed and student, into the run's folder. One update at a time.

    What is drawn follows from the state. So a run that was killed and resumed has the same pictures. Nothing flows back
    into the training.
    """

    def __init__(self, config: Config, folder: RunFolder, say: Callable[[str], None]):
        self._config, self._folder, self._say = config, folder, say
        self._mesh = mesh_of(config)
        self._under_way: tuple[int, Future[Pictures]] | None = None

    def begin(self, update: int, state: RunnerState) -> None:
        """Copies what is needed of the state, and starts to draw it. All processes must call this."""
        assert self._under_way is None, "taken before the next ones begin"
        # The optimiser's state is as large as two networks, and is not drawn.
        needed = state.replace(students=state.students.replace(opt_state=()), start=())
        needed = self._mesh.on_one_device(needed)
        if hosts.is_first():
            # At once: the next step of the training overwrites these arrays.
            copied = jax.tree.map(copy_of_first, needed)
            worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pictures")
            self._under_way = update, worker.submit(self._draw, update, copied)
            worker.shutdown(wait=False)  # the thread ends when its work is done

    def taken(self, wait: bool) -> tuple[int, Pictures] | None:
        """(update, the pictures) that were begun, once they are on disk; None if there are none, or not yet."""
        if self._under_way is None or not (wait or self._under_way[1].done()):
            return None
        update, drawing = self._under_way
        self._under_way = None
        try:
            return update, drawing.result()
        # Whatever an environment's own drawing may raise. It must not end the training.
        except Exception as error:
            self._say(f"the pictures of update {update:,} have failed: {one_line(error)}")
            return None

    def _draw(self, update: int, state: RunnerState) -> Pictures:
        from minimax_lib.pictures import films, galleries  # slow to import, and only needed here
        from minimax_lib.store.loaded import LoadedRun
        from minimax_lib.store.saved import Run

        run = LoadedRun(Run(self._folder, self._config, None), update, state, self._config.seed)
        draw: dict[str, Callable[[], np.ndarray]] = {
            "best": lambda: galleries.best_levels(run),
            "sources": lambda: galleries.sources(run),
            "lineage": lambda: galleries.lineages(run),
            "designs": lambda: galleries.designs([run]),
            "episodes": lambda: films.ways(run.play_tasks(self._tasks(), jax.random.key(update))),
        }
        pictures = {}
        for name, make in draw.items():
            try:
                pictures[name] = make()
            except galleries.NotThere:
                continue  # the method has none
            self._write(f"update{update}-{name}.png", pictures[name])
        return pictures

    def _tasks(self) -> tuple[str, ...]:
        evaluation = self._config.eval
        options = {} if evaluation.protocol is None else {"protocol": evaluation.protocol}
        return make_held_out(self._config.env, evaluation.tasks, **options).names[:MOST_TASKS]

    def _write(self, name: str, picture: np.ndarray) -> None:
        from PIL import Image

        folder = self._folder.path / FOLDER
        # Without the folder of the run, there is nothing to write to: the run itself says so.
        folder.mkdir(exist_ok=True)
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "png")
        write_atomically(folder / name, file.getvalue())


def copy_of_first(leaf: Any) -> Any:
    """A copy of the first seed's part of an array [S, ...], with its axis, on the host."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = np.array(np.asarray(jax.random.key_data(leaf))[:1])
        return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(leaf))
    return np.array(np.asarray(leaf)[:1])

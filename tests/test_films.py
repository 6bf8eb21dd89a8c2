"""Films of episodes: what is in a frame, and files that other programs read."""

import functools
import io
import types

import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

from minimax_lib.envs.base import Environment
from minimax_lib.envs.maze import AMaze, Level
from minimax_lib.envs.maze.render import AGENT, FLOOR, GOAL, UNSEEN, WALL
from minimax_lib.envs.pendulum.pendulum import Pendulum
from minimax_lib.pictures import films
from minimax_lib.store.loaded import Episode

ENV = AMaze(height=2, width=3, n_walls=0, view_size=3, see_through_walls=False)
CELL = 20


def level_of(rows, agent, agent_dir, goal):
    walls = np.array([[cell == "#" for cell in row] for row in rows])
    return Level(walls, np.array(agent, np.int32), np.array(agent_dir, np.int32), np.array(goal, np.int32))


@functools.cache
def programs_of(env):
    """(reset, step)."""
    return jax.jit(env.reset), jax.jit(env.step)


def episode_of(env, level, actions) -> Episode:
    key = jax.random.key(0)
    state, ts = jax.device_get(programs_of(env)[0](key, level))
    states, total = [state], 0.0
    for action in actions:
        state, ts = jax.device_get(programs_of(env)[1](key, state, np.int32(action)))
        states.append(state)
        total += float(ts.reward)
    progress = 1.0 if total > 0 else 0.0
    return Episode(env, level, jax.tree.map(lambda *x: np.stack(x), *states), total, len(actions), progress, {})


@pytest.fixture(scope="module")
def walk():
    """Two steps east, to the goal."""
    return episode_of(ENV, level_of(["...", "##."], [0, 0], 0, [2, 0]), [2, 2])


def colour(picture, row, column, left=0, top=0):
    """The colour near a corner of a cell, where neither the agent nor a line is."""
    return tuple(int(x) for x in picture[top + row * CELL + 3, left + column * CELL + 3])


def test_a_frame_shows_the_map_with_what_is_seen_lit_and_the_view_beside_it(walk):
    frame = films.moment(walk, 0)
    height, width = 4 * CELL, 5 * CELL  # with the border
    assert frame.shape == (height, width + CELL + 3 * CELL, 3)
    # It looks east from the corner: it sees two cells ahead, and one to each side.
    assert colour(frame, 1, 2) == tuple(round(0.3 * 255) for _ in range(3))  # seen floor
    assert colour(frame, 0, 2) == tuple(int(x + 0.3 * (255 - x)) for x in WALL)  # seen border
    assert colour(frame, 3, 1) == WALL  # the border below is not seen
    # In the view it looks upwards: the goal is two cells ahead, with the border to the left, a wall to the right.
    view = {"left": width + CELL, "top": (height - 3 * CELL) // 2}
    assert colour(frame, 0, 1, **view) == GOAL
    assert colour(frame, 1, 1, **view) == FLOOR
    assert colour(frame, 1, 0, **view) == WALL
    assert colour(frame, 1, 2, **view) == WALL
    centre = (view["top"] + int(2.5 * CELL), view["left"] + int(1.5 * CELL))
    assert tuple(frame[centre]) == AGENT


def test_cells_that_walls_hide_are_dark_in_the_view_and_not_lit_in_the_map():
    boxed = episode_of(ENV, level_of([".#.", "##."], [0, 0], 0, [2, 0]), [])
    frame = films.moment(boxed, 0)
    assert colour(frame, 0, 1, left=6 * CELL, top=CELL // 2) == UNSEEN
    goal = frame[CELL + 3, 3 * CELL + 3]
    assert tuple(goal) == GOAL


def test_an_episode_that_has_ended_stays_as_it_ended(walk):
    longer = episode_of(ENV, level_of(["...", "..."], [0, 1], 0, [2, 0]), [0, 1, 0, 1])
    frames = films.film([walk, longer], ["a", "b"])
    assert len(frames) == 5
    assert len({frame.shape for frame in frames}) == 1
    half = frames[0].shape[1] // 2
    assert (frames[0][:, :half] != frames[1][:, :half]).any()
    np.testing.assert_array_equal(frames[2][:, :half], frames[4][:, :half])
    assert (frames[3][:, half:] != frames[4][:, half:]).any()


def test_episodes_are_made_smaller_and_captions_are_not(walk):
    moment = films.moment(walk, 0)
    small = films.scaled(moment, 0.5)
    assert small.shape == (moment.shape[0] // 2, moment.shape[1] // 2, 3)
    whole, half = (films.film([walk], ["a"], scale=scale)[0] for scale in (1.0, 0.5))
    assert [n - m for n, m in zip(whole.shape, half.shape, strict=True)] == [n // 2 for n in moment.shape[:2]] + [0]


def test_a_way_is_drawn_in_one_picture_with_how_it_ended(walk):
    assert films.told("Corridor", walk) == "Corridor: solved in 2 steps"
    picture = films.ways({"Corridor": walk})
    assert picture.ndim == 3


@pytest.mark.parametrize("ending", ["gif", "mp4"])
def test_a_film_is_a_file_that_others_can_read(ending, walk, tmp_path, monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")  # the reader would fork
    frames = films.film([walk])
    path = films.save_film(frames, tmp_path / "new" / f"film.{ending}", fps=10, hold=0.3)
    if ending == "gif":
        with Image.open(path) as film:
            assert film.info["loop"] == 0
            shown = []
            for i in range(film.n_frames):
                film.seek(i)
                shown.append((film.info["duration"], np.asarray(film.convert("RGB"))))
        assert [milliseconds for milliseconds, _ in shown] == [100, 100, 400]
        pictures = [picture for _, picture in shown]
    else:
        imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
        reader = imageio_ffmpeg.read_frames(str(path))
        meta = next(reader)
        assert meta["fps"] == 10
        width, height = meta["size"]
        read = [np.frombuffer(raw, np.uint8).reshape(height, width, 3) for raw in reader]
        assert len(read) == len(frames) + 3
        pictures = read[: len(frames)]
    for picture, frame in zip(pictures, frames, strict=True):
        height, width = picture.shape[:2]
        assert np.abs(picture.astype(int) - frame[:height, :width]).mean() < 4


@pytest.mark.parametrize("fps", [30, 40, 49.5])
def test_a_gif_lasts_as_long_as_its_frames_should(fps):
    """A GIF counts hundredths of a second."""
    frames = [np.full((4, 4, 3), 255 * (i % 2), np.uint8) for i in range(12)]
    with Image.open(io.BytesIO(films.film_bytes(frames, ".gif", fps, hold=0))) as film:
        shown = [frame.info["duration"] for frame in ImageSequence.Iterator(film)]
    assert len(shown) == 12
    assert sum(shown) == pytest.approx(12_000 / fps, abs=5)
    assert min(shown) >= 20  # browsers show shorter frames for much longer


def test_wide_frames_are_made_smaller():
    wide = np.zeros((100, 3 * films.WIDEST, 3), np.uint8)
    (tmp,) = [films.film_bytes([wide], ".gif", hold=0)]
    assert tmp[:3] == b"GIF"
    assert int.from_bytes(tmp[6:8], "little") == films.WIDEST
    assert int.from_bytes(tmp[8:10], "little") == 33


def test_other_endings_and_a_missing_library_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"'film.avi' is not a moving picture: its name must end with .gif or .mp4"):
        films.save_film([], "film.avi")
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match=r"an \.mp4 needs imageio: pip install"):
        films.save_film([], "film.mp4")


def test_an_environment_that_draws_nothing_is_refused():
    class Blank(Environment): ...

    episode = types.SimpleNamespace(env=Blank(), length=0, states=())
    with pytest.raises(ValueError, match="no picture: Blank has no method to draw its episodes"):
        films.film([episode])


def pole(picture):
    """[x, y] of the middle of what is drawn in the colours of the pole, from the middle of the circle; y up."""
    blue = (np.abs(picture.astype(int) - [31, 78, 156]).sum(axis=-1) < 30) | (
        np.abs(picture.astype(int) - [139, 194, 122]).sum(axis=-1) < 30
    )
    y, x = np.argwhere(blue).mean(axis=0)
    return x - 100, 92 - y


@functools.cache
def level_of_pendulum():
    return jax.device_get(jax.jit(Pendulum().sample_level)(jax.random.key(1)))


POLES = [(0.0, (0, 1)), (np.pi / 2, (-1, 0)), (-np.pi / 2, (1, 0)), (np.pi, (0, -1))]


@pytest.mark.parametrize(("angle", "where"), POLES)
def test_the_pole_is_drawn_at_its_angle(angle, where):
    env = Pendulum()
    state, _ = programs_of(env)[0](jax.random.key(0), level_of_pendulum())
    x, y = pole(env.draw_state(state.replace(angle=np.float32(angle))))
    assert np.allclose(np.sign([x, y]) * (np.abs([x, y]) > 5), where)


def test_a_level_of_the_pendulum_is_a_pole_as_long_as_it_says():
    env = Pendulum()
    level = level_of_pendulum()
    heights = []
    for length in (0.5, 1.5):
        state, _ = programs_of(env)[0](jax.random.key(0), level.replace(length=np.float32(length)))
        states = jax.tree.map(lambda x: np.asarray(x)[None, None], state)
        picture = env.draw_episodes(states, np.ones((1, 1), bool), ["a"], 1)
        heights.append(pole(picture[16:216, 16:216])[1])
    assert heights[1] < 1.5 * heights[0] < 0  # both hang

"""Episodes as moving pictures, GIF or MP4."""

import io
import math
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from PIL import Image

from minimax_lib.envs.base import Environment
from minimax_lib.envs.drawing import arranged, shrunk
from minimax_lib.envs.registry import make_held_out
from minimax_lib.extras import how_to_install
from minimax_lib.files import naming
from minimax_lib.messages import shown
from minimax_lib.playing.crowds import AnyEpisode

ENDINGS = (".gif", ".mp4")
COLOURS = 128  # of a GIF, at most 256
WIDEST = 1280  # pixels, the width of a film
MOST_OF_GIF = 50  # frames in a second of a GIF
USUAL_TASKS, MOST_USUAL = ("validation",), 4


def check_film(file: Path, fps: float = 10.0) -> None:
    """ValueError where `file` is not a film that can be written here, with so many frames in a second."""
    if file.suffix not in ENDINGS:
        raise ValueError(f"{shown(str(file))} is not a moving picture: its name must end with {' or '.join(ENDINGS)}")
    if file.suffix == ".gif" and fps > MOST_OF_GIF:
        raise ValueError(
            f"fps is {fps}: it must be at most {MOST_OF_GIF} for a GIF; browsers show a faster one slowly (an .mp4 may "
            "have more)"
        )
    if file.suffix == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError:
            raise ValueError(f"an .mp4 needs imageio: {how_to_install('video')}, or choose .gif") from None


def tasks_to_show(env: Environment, tasks: Sequence[str], **options: str) -> tuple[str, ...]:
    """The names of the held-out tasks of which episodes are shown: a few for validation if `tasks` is empty.

    ValueError for one that is not known. `options` are those of `make_held_out`.
    """
    names = make_held_out(env, tuple(tasks) or USUAL_TASKS, **options).names
    return names if tasks else names[:: math.ceil(len(names) / MOST_USUAL)]


def film(
    episodes: Sequence[AnyEpisode],
    captions: Sequence[str] = (),
    columns: int = 2,
    gap: int = 16,
    scale: float = 1.0,
) -> list[np.ndarray]:
    """Frames (u8[H, W, 3], all of one size), one for each step of the longest episode, side by side.

    An episode that has ended stays as it ended. Pictures are made smaller by `scale`, and captions are not. ValueError
    where an environment draws no pictures.
    """
    for episode in episodes:
        if episode.env.draw_state is None and episode.env.draw_episodes is None:
            raise ValueError(f"no picture: {type(episode.env).__name__} has no method to draw its episodes")
    texts = [captions[i] if i < len(captions) else "" for i in range(len(episodes))]
    columns = min(columns, len(episodes))
    # An episode's last moment is drawn once, and not in every frame after it.
    drawn = [[scaled(moment(episode, time), scale) for time in range(episode.length + 1)] for episode in episodes]
    n_frames = max(map(len, drawn))
    return [arranged([own[min(time, len(own) - 1)] for own in drawn], texts, columns, gap) for time in range(n_frames)]


def scaled(picture: np.ndarray, scale: float) -> np.ndarray:
    """The picture, made smaller if `scale` is below 1."""
    return shrunk(picture, round(scale * picture.shape[1]))


def moment(episode: AnyEpisode, time: int) -> np.ndarray:
    """u8[H, W, 3]: the episode after `time` steps."""
    env = episode.env
    if env.draw_state:
        return env.draw_state(jax.tree.map(lambda x: x[time], episode.states))
    # The environment draws only ways.
    return moment_of_way(episode, time)


def moment_of_way(episode: AnyEpisode, time: int) -> np.ndarray:
    """u8[H, W, 3]: the agent's way after `time` steps."""
    env = episode.env
    if env.draw_episodes is None:
        raise ValueError(f"no picture: {type(env).__name__} has no method to draw its episodes")
    states = jax.tree.map(lambda x: x[: time + 1, None], episode.states)
    return env.draw_episodes(states, np.ones((time + 1, 1), bool), [""], columns=1)


def ways(episodes: Mapping[str, AnyEpisode], columns: int = 4, gap: int = 20) -> np.ndarray:
    """u8[H, W, 3]: the agent's whole way through each of the episodes, above its name and how it ended.

    ValueError where an environment draws no pictures.
    """
    columns = min(columns, len(episodes))
    drawn = [moment_of_way(episode, episode.length) for episode in episodes.values()]
    return arranged(drawn, [told(name, episode) for name, episode in episodes.items()], columns, gap)


def told(name: str, episode: AnyEpisode) -> str:
    """How an episode ended, in words."""
    return f"{name}: {episode.end} in {episode.length} steps"


def save_film(frames: Sequence[np.ndarray], file: str | Path, fps: float = 10.0, hold: float = 2.0) -> Path:
    """Writes the frames as a GIF that loops, or as an MP4. The last one stays for `hold` seconds more."""
    file = Path(file)
    check_film(file, fps)
    file.parent.mkdir(parents=True, exist_ok=True)
    with naming(file):
        file.write_bytes(film_bytes(frames, file.suffix, fps, hold))
    return file


def film_bytes(frames: Sequence[np.ndarray], ending: str, fps: float = 10.0, hold: float = 2.0) -> bytes:
    """The frames (u8[H, W, 3], all of one size) as a file whose name ends with .gif or .mp4.

    The last one stays for `hold` seconds more. Frames that are very wide are made smaller.
    """
    frames = [shrunk(frame, WIDEST) for frame in frames]
    frames = [*frames, *[frames[-1]] * round(fps * hold)]
    return (_gif if ending == ".gif" else _mp4)(frames, fps)


def _gif(frames: Sequence[np.ndarray], fps: float) -> bytes:
    # One palette for all frames. A palette for each would flicker, and make the file larger.
    colours = Image.fromarray(np.concatenate([frames[0], frames[len(frames) // 2], frames[-1]])).quantize(COLOURS)
    pictures = [Image.fromarray(frame).quantize(palette=colours, dither=Image.Dither.NONE) for frame in frames]
    # A GIF counts hundredths of a second: at 30 frames in a second, some stay for three of them and some for four.
    starts, file = np.round(np.arange(len(frames) + 1) * 100 / fps), io.BytesIO()
    durations = [10 * int(hundredths) for hundredths in np.diff(starts)]
    pictures[0].save(file, "gif", save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True)
    return file.getvalue()


def _mp4(frames: Sequence[np.ndarray], fps: float) -> bytes:
    import imageio_ffmpeg

    # Players want even numbers of pixels.
    height, width = (n - n % 2 for n in frames[0].shape[:2])
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    # yuv420p, and the index first: what browsers and slides play.
    target = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-movflags", "+faststart"]
    pixels = b"".join(np.ascontiguousarray(frame[:height, :width]).tobytes() for frame in frames)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "film.mp4"
        # Not with the library's own writer: it forks a process in which JAX is running.
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *source, *target, str(file)]
        done = subprocess.run(command, input=pixels, capture_output=True, check=False)
        if done.returncode:
            raise OSError(f"ffmpeg cannot write a film: {' '.join(done.stderr.decode(errors='replace').split())}")
        return file.read_bytes()

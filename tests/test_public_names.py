"""The names that users' code relies on, reached as they reach them: in a fresh process, from `import minimax_lib`."""

import subprocess
import sys

PROGRAM = """
import jax, minimax_lib
env = minimax_lib.make_env("AMaze", height=4, width=5, n_walls=3, replace_walls=True, sample_n_walls=False, view_size=5,
                           see_through_walls=True, see_agent=False, max_steps=20)
@jax.jit
def played(key):
    level = env.sample_level(key)
    state, ts = env.reset(key, level)
    return level, env.step(key, state, 2)[1]

level, ts = played(jax.random.key(0))
assert set(ts.obs) == {"image", "direction"}
assert isinstance(level, minimax_lib.envs.maze.Level)
assert minimax_lib.envs.maze.ood.load("SixteenRooms").wall_map.shape == (13, 13)
assert minimax_lib.curricula.scores.SCORES["max_mc"]
assert minimax_lib.curricula.level_buffer.init
assert minimax_lib.gae.gae
assert minimax_lib.register_env and minimax_lib.register_model
assert minimax_lib.register_curriculum and minimax_lib.register_score and minimax_lib.register_editing
runner = minimax_lib.make_runner(minimax_lib.config.Config(env=env))
assert runner.init and runner.step  # tests/test_docs.py runs the README, which calls them
missing = set(minimax_lib.__all__) - set(dir(minimax_lib))
assert not missing, missing
"""


def test_public_names_are_where_the_documentation_says():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

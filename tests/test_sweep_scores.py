"""The score of a trial by hand: of whole evaluations alone, and of the first of those that are equally good."""

from types import SimpleNamespace

from minimax_lib.config.sweep import ScoreSettings
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.sweeps.table import counted, scores_of

TASKS = ("SixteenRooms", "Labyrinth")


def test_evaluations_of_which_a_part_is_missing_have_no_score(tmp_path):
    """A process that is killed may leave one without a task of a seed. Other tasks do not count."""
    whole = {0: (0.0, 0.5, 1.0, 0.0), 20: (0.25, 0.75, 1.0, 1.0)}
    rows = [
        f"{update},{7 + seed},{task},{rates[2 * seed + i]}"
        for update, rates in whole.items()
        for seed in range(2)
        for i, task in enumerate(TASKS)
    ]
    rows += [f"{update},{seed},Maze,0" for update in (0, 20) for seed in (7, 8)]
    rows += ["40,7,SixteenRooms,1", "40,7,Labyrinth,1", "40,8,SixteenRooms,1"]
    path = tmp_path / "eval.csv"
    path.write_text("\n".join(["update,seed,task,solved_rate", *rows, ""]))
    config = SimpleNamespace(env=AMaze(), runner=SimpleNamespace(n_listed=0), seed=7, n_seeds=2)
    run = SimpleNamespace(config=config, folder=SimpleNamespace(evaluations=path))
    assert scores_of(run, ScoreSettings(tasks=TASKS)) == {0: (0.25, 0.5), 20: (0.5, 1.0)}


def test_of_equally_good_evaluations_the_first_counts():
    scores = {0: (0.0, 0.5), 20: (0.5, 1.0), 40: (1.0, 0.5), 60: (0.5, 0.5)}
    assert counted(scores, ScoreSettings(evaluation="best")) == 20
    assert counted(scores, ScoreSettings()) == 60
    assert counted({}, ScoreSettings()) == 0

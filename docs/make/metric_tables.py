"""One line of explanation for every metric and column, table by table."""

from docs.make.metric_table import OF_ENVIRONMENTS, MetricTable

POSITION = MetricTable(
    "Position of a row",
    "The first columns of `metrics.csv`. It has a row for each log interval and seed.",
    {
        "update": "gradient updates of each student so far",
        "clock": "steps of the runner so far; a step that only scores levels is not an update",
        "seed": "seed of the run",
        "env_steps": "environment steps of this seed so far, those that only score too; each agent alive takes one",
        "seconds": "seconds of training since the run began, summed over its processes",
        "steps_per_second": "environment steps of all seeds in the interval; compilation, evaluation, writing left out",
    },
)

TRAINING: tuple[MetricTable, ...] = (
    MetricTable(
        "Episodes in training",
        "They describe the first episode of each row. Where episodes go on in the next rollout (`dr` with long "
        "episodes),\nthey are means over all episodes that ended in the interval.",
        {
            "return": "mean undiscounted return of the first student; of an unfinished episode, the return so far",
            "solved_rate": "share of episodes whose progress was 1 at the end; an unfinished one is not solved",
            "unfinished": "share of episodes that were cut off by the end of the rollout",
            "episodes": "number of episodes that ended in a step of the runner",
        },
    ),
    MetricTable(
        "Learning",
        "Means over the gradient steps of an update (PPO). `nan` on steps that only score levels.",
        {
            "loss": "policy loss + `value_coef` x value loss - `entropy_coef` x entropy",
            "policy_loss": "clipped policy loss",
            "value_loss": "clipped value loss, half of a squared error",
            "entropy": "entropy of the policy in nats",
            "grad_norm": "global norm of the gradient, before it is clipped",
            "approx_kl": "mean of r - 1 - log r, r the probability ratio: how far the policy has moved (Schulman 2020)",
            "clip_fraction": "share of actions whose probability ratio is outside the clipping range",
            "explained_variance": "of the value targets by the values: 1 perfect, 0 no better than a constant",
        },
    ),
    MetricTable(
        "Levels, by their source",
        "`<source>` is `new` (just generated), `replay` (from the level buffer) or `mutation` (a child of a replayed "
        "level).",
        {
            "level/<source>/return": "`return`, on levels of this source",
            "level/<source>/solved_rate": "`solved_rate`, on levels of this source",
            "level/<source>/unfinished": "`unfinished`, on levels of this source",
        },
    ),
    MetricTable(
        "Level buffer (`plr`, `accel`, `traced`, `cenie`)",
        "With `cenie`, the scores in the buffer are the strengths that its two scores give a level.",
        {
            "buffer/fill": "share of the buffer's slots that hold a level",
            "buffer/weighted_score": "mean score, weighted by the probability of being replayed next",
            "buffer/weighted_age": "mean number of levels sampled since this one was, weighted likewise",
            "buffer/weighted_n_mutations": "mean number of edits since the level was generated, weighted likewise",
            "buffer/score_p10": "10% quantile of the scores in the buffer",
            "buffer/score_p50": "median of the scores in the buffer",
            "buffer/score_p90": "90% quantile of the scores in the buffer",
            "batch/score": "mean score of the batch's levels, of those that have one",
            "batch/unfinished": "share of the batch's levels on which no episode ended, which have no score",
            "replay_share": "share of the batch's levels that were replayed",
            "cenie/novelty": "mean novelty of the batch's levels, of those that have a score (`cenie`)",
            "traced/co_learnability": "mean fall of the scores of the levels that were replayed (`traced`)",
        },
    ),
    MetricTable(
        "Sampling for learnability (`sfl`)",
        "",
        {
            "sfl/learnability": "mean p (1 - p) of the kept levels, p their solved rate in the last scoring",
            "sfl/scoring_steps": "environment steps that were spent on scoring, in a step of the runner",
        },
    ),
    MetricTable(
        "A learnt distribution (`ncc`)",
        "",
        {
            "ncc/score": "mean score of the levels that have one",
            "ncc/weighted_score": "mean score, weighted by the distribution: what the adversary raises",
            "ncc/effective": "share of the levels that would have this entropy if they all weighed the same",
            "ncc/taken": "new levels that took the place of others",
            "ncc/scoring_steps": "environment steps that were spent on scoring, in a step of the runner",
        },
    ),
    MetricTable(
        "Task curricula (`tasks`, `box`)",
        "The weight of a task is its chance to be the next one that comes back.",
        {
            "tasks/seen": "share of the tasks that have a score (`plr`)",
            "tasks/tried": "share of the tasks on which an attempt has ended (`tscl`, `frontier`)",
            "tasks/replay_probability": "probability that the next draw is a replayed task (`plr`)",
            "tasks/effective": "share of the tasks that would have this entropy if they all weighed the same",
            "tasks/score": "mean score of the attempts that ended",
            "tasks/length": "mean number of steps of the attempts that ended",
            "tasks/weighted_score": "mean score of the tasks, by weight",
            "tasks/weighted_age": "mean number of attempts that have begun since the task was last begun, by weight",
            "tasks/rate": "mean rate of success of all tasks (`frontier`: those tried): last (`sfl`) or average",
            "tasks/progress": "mean learning progress of all tasks",
            "tasks/learnability": "mean r (1 - r) of all tasks, r their rate of success",
            "tasks/high_baseline": "share of the tasks whose first rate was 0.75 or more: there is little to gain",
            "tasks/boring": "share of the tasks that are boring beside those that the student can do (`omni`)",
            "tasks/mixed": "of the tasks that were tried, the share whose answers have differed (`frontier`)",
            "tasks/mastered": "share of all tasks whose last groups of answers (usually two) were right (`frontier`)",
            "tasks/batch": "batches of the same task that have ended (`batched_dr`)",
            "tasks/point/<parameter>": "mean value of this parameter on the levels whose episodes have begun (`box`)",
            "tasks/annealed": "share of the way from the start to the end (`annealing`)",
            "tasks/range": "share of the dimension that the range has reached (`expanding_box`)",
            "sequential/stage": "number of the current stage, from 0",
            "sequential/late": "attempts so far that ended when the stage did not have their task any more",
            "sequential/progress": "mean progress of the stage's last attempts, where a condition reads it",
            "evaluation/rate": "mean rate of success of the tasks in the last evaluation of a core that needs them",
            "evaluation/steps": "environment steps of the evaluation, in a step of the runner; 0 where there was none",
            "tasks/share/<metric>_<i>": "weight of all tasks together whose level metric has this value "
            "(`--runner.share`)",
            "levels/tasks/<metric>": "the same of the curriculum over levels, where agents have tasks "
            "(`--runner.levels`)",
            "levels/evaluation/<metric>": "the same of its evaluations",
        },
    ),
    MetricTable(
        "Teachers (`paired`, or `--runner.generator teacher`)",
        "",
        {
            "teacher/reward": "mean payment of the designs that have a score",
            "teacher/unpaid": "share of designs that have no score, from which the teacher does not learn",
            "teacher/diversity": "mean number of entries (cells, coordinates) in which two designs of a batch differ",
            "teacher/loss": "as `loss`, of the teacher's own PPO",
            "teacher/policy_loss": "as `policy_loss`",
            "teacher/value_loss": "as `value_loss`",
            "teacher/entropy": "as `entropy`",
            "teacher/grad_norm": "as `grad_norm`",
            "teacher/approx_kl": "as `approx_kl`",
            "teacher/clip_fraction": "as `clip_fraction`",
            "teacher/explained_variance": "as `explained_variance`",
        },
    ),
    MetricTable(
        "Several students",
        "Student 0 is the first one: the protagonist of PAIRED, whose antagonist is student 1.",
        {
            "student_<i>/return": "`return` of student i",
            "student_<i>/solved_rate": "`solved_rate` of student i",
            "student_<i>/unfinished": "`unfinished` of student i",
            "regret": "mean regret of two students (relative) or more (population), where they can be compared",
        },
    ),
    MetricTable(
        "Opponents (`selfplay`, `maestro`)",
        "The first game of each row counts, once it has ended. It is won where the student's return is the higher one.",
        {
            "games/won": "share of these games that the student has won",
            "games/drawn": "share of them that ended with equal returns",
            "games/ended": "first games of rows that have ended in the batch",
            "games/live": "share of them against the student as it is now",
            "games/scripted": "share of them against the environment's written player (`--runner.scripted`)",
            "games/scripted_won": "share of those that the student has won",
            "opponents/copies": "copies of the student in the bank",
            "opponents/effective": "copies that would have this entropy if all had the same chance (`selfplay`)",
            "opponents/win_rate": "mean over the copies of the student's rate of wins in the window; a draw is half",
            "opponents/lowest_win_rate": "the lowest of these rates: a fall shows that something is forgotten",
            "opponents/oldest_win_rate": "the rate against the oldest copy that was met: a fall likewise",
            "opponents/newest_win_rate": "the rate against the newest copy that was met",
            "maestro/levels": "levels in the buffers of all co-players",
            "maestro/age": "copies that have joined the bank after the co-player of the batch",
            "facts/opponent_return": "mean return of the opponents",
        },
    ),
    MetricTable(
        "Several agents in an environment",
        "An agent's life is its episode.",
        {
            "agents/alive": "share of all agents and steps in which the agent was alive",
            "facts/lifetime": "mean number of steps of a life",
        },
    ),
    *OF_ENVIRONMENTS,
)

FACTS = MetricTable(
    "Other environments and wrappers",
    "An environment of your own may report more, and so may a wrapper.",
    {
        "facts/<fact>": "mean over the episodes of what the environment reports of them (`TimeStep.facts`)",
        "facts/raw_return": "`return` without what a wrapper added to the rewards",
        "level/<source>/<parameter>": "mean over levels of what `level_metrics` of the environment returns",
    },
)

EVALUATIONS = MetricTable(
    "eval.csv",
    "A row for each evaluation, seed and held-out task. Runs that an earlier version began keep the names `maze` for "
    "`task`\nand `solved` for `solved_rate`.",
    {
        "update": "gradient updates so far; 0 is the untrained agent",
        "seed": "seed of the run",
        "task": "held-out task; TrainingDistribution is fresh random levels",
        "return": "mean undiscounted return of the first student's whole episodes",
        "solved_rate": "share of these episodes whose progress was 1 at the end",
        "facts/<fact>": "mean of what else the environment reports of an episode, as in `metrics.csv`",
    },
)

RESULTS = MetricTable(
    "evaluations/*.csv, of evaluate.py",
    "A row for each seed and held-out task. With `--robust`, a row for each seed and share of the levels. Where\n"
    "agents of one world have different tasks, also a row for each of these, called `held-out task/task`.",
    {
        "seed": "seed of the run",
        "task": "held-out task; with `--robust` the share of the levels, as in `worst 1%`",
        "solved_rate": "share of episodes whose progress was 1 at the end (with `--robust` also called the win rate)",
        "return": "mean undiscounted return; not with `--robust`",
        "length": "mean number of steps of an episode; not with `--robust`",
        "facts/<fact>": "mean of what else the environment reports of an episode; not with `--robust`",
        "progress": "where agents have different tasks: mean of the highest progress in each life",
        "lives": "likewise: lives of agents in the row",
        "n_worst": "with `--robust`: number of levels in this share, over which the row is a mean",
        "update": "gradient updates of the checkpoint that was evaluated",
        "n_episodes": "episodes on each held-out task, or on each level in each of the two evaluations of `--robust`",
        "actions": "`sampled` from the policy, or `greedy`",
        "protocol": "published rules of the held-out tasks, where `--protocol` was given",
        "evaluation_seed": "`--seed` of the evaluation",
        "student": "which student of a population, from 0",
        "n_levels": "with `--robust`: number of levels in all",
    },
)

PRINTED = MetricTable(
    "Printed tables",
    "The end of training and evaluate.py print tables that are in no file.",
    {
        "solved rate": "mean over the seeds of `solved_rate`",
        "IQM": "interquartile mean of `solved_rate`: mean of the middle half of all seeds and held-out tasks",
        "95% bootstrap interval": "of the IQM, by the bootstrap over whole seeds; from 5 seeds on",
        "each seed, %": "`solved_rate` of each seed, where there are too few for an interval",
        "levels": "with `--robust`: as `n_worst`",
        "untrained": "solved rate of the first parameters on the same levels, in the report after training",
        "initial": "the same, where the first parameters were learnt elsewhere (`--init-from`)",
        "trained": "solved rate of the last parameters, in the report after training",
        "return": "mean return over the seeds; in the report, that of the trained agent",
    },
)

GAMES = MetricTable(
    "evaluations/matches/*.csv",
    "`minimax-evaluate --opponents` writes a row for each seed, opponent and held-out task. The columns of\n"
    "`evaluations/` that say how it was measured are there too. The file of all against all, whose name ends with\n"
    "`matrix`, has a row for each player, opponent and map, with all seeds of a player together. It is the `--out`\n"
    "of `--compare`.",
    {
        "seed": "seed of the run; not in a matrix",
        "player": "in a matrix: the run, the method or the opponent that the row is of",
        "task": "held-out task: the map",
        "opponent": "the opponent, as it was named; with `--compare` the other methods too",
        "opponent_seed": "its seed, if it is of a run",
        "opponent_update": "gradient updates of its checkpoint",
        "opponent_copy": "for `bank`: the number of the copy, from 0",
        "n_games": "games, half of them in each seat",
        "win": "share of games with a higher return than the opponent's",
        "draw": "share of games with equal returns",
        "loss": "share of the other games",
        "length": "mean number of steps of a game",
        "elo": "in a matrix: the player's Elo, from its games on all maps",
        "elo_low": "lower end of its 95% interval, by the bootstrap over games; in shared worlds, over worlds",
        "elo_high": "its upper end",
    },
)

SHARED = MetricTable(
    "evaluations/shared/*.csv",
    "`minimax-evaluate --opponents` in a world of many agents writes a row for each player and held-out task. All\n"
    "players share the seats of each world. The columns of `evaluations/` are there too, as means over worlds of the\n"
    "mean over a player's lives in each. With three players or more, a second file, whose name ends in `matrix`, says\n"
    "who has won how many worlds of whom, with the columns of `evaluations/matches/`.",
    {
        "player": "the run, the method or the opponent that the row is of",
        "worlds": "worlds on the held-out task, with all seeds of a player together",
        "lives": "the player's lives in them",
        "won": "share of the worlds at whose end only teams of the player lived, where there are teams",
        "progress": "mean of the progress at the end of a life, where agents have their own tasks",
    },
)

COMPARED = MetricTable(
    "comparison.csv",
    "`minimax-evaluate --compare` writes a row for each held-out task and method, and one for each method over all of\n"
    "them. With `--robust` it has a row for each share of the levels instead. The columns of `evaluations/` that say\n"
    "how it was measured are there too.",
    {
        "method": "the runner, and the settings in which methods of one runner differ; or what `--label` or `--by` say",
        "n_seeds": "number of seeds, of all runs of the method",
        "env_steps": "environment steps of a seed up to its checkpoint, mean over the seeds; empty if not known",
        "mean": "mean of `solved_rate`",
        "iqm": "interquartile mean of `solved_rate`",
        "low": "lower end of the 95% bootstrap interval of `iqm`; empty with fewer than 5 seeds",
        "high": "its upper end",
        "better_than": "the first method, in the rows of all held-out tasks; empty in others",
        "probability": "that a seed solves more than a seed of the first method, mean over held-out tasks; ties: half",
        "probability_low": "lower end of its 95% bootstrap interval; empty with fewer than 5 seeds",
        "probability_high": "its upper end",
        "updates": "number of updates of the checkpoints",
        "runs": "folders of the runs",
    },
)

CURVES = MetricTable(
    "TensorBoard and wandb",
    "`--tensorboard` writes the numbers of both tables as curves, in a folder for each seed, over `update`. `--wandb`\n"
    "does the same: a W&B run for each seed, whose step is `update`.",
    {
        "<metric>": "a column of `metrics.csv`, under its own name",
        "<task>/<metric>": "a column of `eval.csv`, behind the name of its held-out task",
        "pictures/<name>": "W&B alone: pictures of `--pictures-every`, and `agent` of the report after training",
    },
)

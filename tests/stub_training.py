"""A training command of a few milliseconds, for the tests of sweeps.

behave.json says what becomes of a learning rate; starts.txt records [learning rate, update, time, cores, process].
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

import yaml

words = sys.argv[1:]
config = yaml.safe_load(Path(words[words.index("--config") + 1]).read_text())
assert "--resume" in words
lr, seeds, n = config["ppo"]["lr"], range(config["seed"], config["seed"] + config["n_seeds"]), config["n_updates"]
behaviours = json.loads(Path("behave.json").read_text())
how = behaviours.get(str(lr), behaviours.get("any", ""))
folder = Path(config["log_dir"]) / config["name"]
checkpoints = folder / "checkpoints"
checkpoints.mkdir(parents=True, exist_ok=True)
fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)  # as a real run owns its folder
begin = max((int(path.name) for path in checkpoints.iterdir()), default=0)


def record(*what):
    with open("starts.txt", "a") as file:
        file.write(json.dumps([lr, *what]) + "\n")


def append(name, header, line):
    path = folder / name
    text = "" if path.exists() else header + "\n"
    with path.open("a") as file:
        file.write(text + line + "\n")


def save(update):
    (checkpoints / str(update)).mkdir(exist_ok=True)


def leave(*_):
    save(max(begin, 10))
    sys.exit(143)


def hang():
    Path("hangs").touch()
    time.sleep(60)


record(begin, time.time(), sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [], os.getpid())
signal.signal(signal.SIGTERM, signal.SIG_IGN if how in ("stubborn", "compiling") else leave)
if how == "compiling":
    hang()
print("compiling ...", flush=True)
for update in range(begin, n + 1, 10):
    for seed in seeds:
        row = f"{update},{seed},{update * 100},{update / 2},50"
        append("metrics.csv", "update,seed,env_steps,seconds,steps_per_second", row)
        for i, task in enumerate(config["eval"]["tasks"]):
            solved = lr * 100 + 0.01 * seed + 0.1 * i * (update == 10)
            append("eval.csv", "update,seed,maze,return,solved", f"{update},{seed},{task},{-solved},{solved}")
    if update == 10:
        save(10)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "fail":
            print("error: the loss of seed 0 is not finite at update 10; the newest checkpoint is that of update 10")
            print("and a last line")
            sys.exit(1)
        if how in ("hang", "stubborn"):
            hang()
        if how == "slow":
            time.sleep(0.5)
save(n)
record("end", time.time())

"""`minimax-report`: what is on the page, that nothing on it is code of others, and that it works in a real browser."""

import base64
import csv
import dataclasses
import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import types
import zlib
from collections import Counter
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from browser import CHROMIUM, Browser
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image
from tiny_run import save_tiny_run

import minimax_lib
from minimax_lib.commands.report import made, main
from minimax_lib.config.report import parse
from minimax_lib.envs.base import Environment
from minimax_lib.evaluation.statistics import summarise
from minimax_lib.pictures import html, report_episodes, report_levels, report_tables
from minimax_lib.pictures.runs import find_groups, read_run
from minimax_lib.pictures.scores import evaluated
from minimax_lib.pictures.style import Picture
from minimax_lib.store.loaded import Episode, LoadedRun
from minimax_lib.store.origin import Origin, record

ROOT = Path(__file__).parent.parent
TASKS = ("Rooms", "Maze", "TrainingDistribution")
EVIL = "</script></title><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
VOID = {"br", "img", "input", "link", "meta"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def undrawn(monkeypatch):
    """Figures that are made and not drawn, which takes most of the time of a report."""
    monkeypatch.setattr(report_tables, "svg", lambda picture, words: Markup("<svg></svg>"))


class Page(HTMLParser):
    """A page as a browser reads it. What stands inside a script is not an element."""

    def __init__(self, text: str):
        super().__init__()
        self.text, self.open, self.elements, self.words, self.scripts = text, [], [], [], []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()
        # Browsers show spaces in a row as one.
        self.tables = [[[" ".join(cell.split()) for cell in row] for row in rows] for rows in self.tables]
        assert self.open == [], "elements that do not end"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> ends another element"

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.words.append(data)
            if {"th", "td"} & set(self.open):
                self.tables[-1][-1][-1] += data

    def table(self, *head: str) -> list[list[str]]:
        """The rows of the table whose heading begins so."""
        (found,) = [rows for rows in self.tables if any(row[: len(head)] == list(head) for row in rows[:2])]
        return found

    def block(self, id_: str):
        """The numbers for the script that are called `id_`."""
        scripts = [attributes for tag, attributes in self.elements if tag == "script"]
        return json.loads(self.scripts[[one.get("id") for one in scripts].index(id_)])

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.words).split())


def table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def make_tables(folder, seeds, task="task", extra="level/new/n_walls"):
    """metrics.csv and eval.csv of a run of 40 updates."""
    metrics = [
        {"update": 10 * i, "clock": 20 * i, "seed": seed, "env_steps": 1000 * i, "seconds": 30 * i}
        | {"steps_per_second": 100 * i, "return": seed + i, "solved_rate": i / 4, extra: i}
        for i in (1, 2, 3, 4)
        for seed in seeds
    ]
    evals = [
        {"update": update, "seed": seed, task: name, "return": 0.5, "solved_rate": 0.1 * seed + 0.2 * j}
        for update in (0, 40)
        for seed in seeds
        for j, name in enumerate(TASKS)
    ]
    table(folder / "metrics.csv", metrics)
    table(folder / "eval.csv", evals)


def make_run(name, seed=0, n_seeds=2, runner="plr", **settings):
    """A folder as a run leaves it, without checkpoints."""
    folder = Path(name)
    folder.mkdir(parents=True)
    config = {"runner": {"name": runner}, "ppo": {"lr": 1e-4}, "seed": seed, "n_seeds": n_seeds, "n_updates": 40}
    (folder / "config.yaml").write_text(yaml.safe_dump(config | settings))
    make_tables(folder, range(seed, seed + n_seeds))
    return folder


def fingerprints(folder):
    files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def report(*words):
    assert main(list(map(str, words))) == 0
    return Page(Path("report.html").read_text())


# ------------------------------------------------------------------------------------------------------------ the page


def test_a_page_of_two_methods_is_complete_and_loads_nothing(capsys):
    runs = [make_run("runs/a"), make_run("runs/b", 2), make_run("runs/c", runner="dr", ppo={"lr": 0.5})]
    before = fingerprints("runs")
    page = report(*runs)
    assert fingerprints("runs") == before
    assert re.search(r"written: report\.html, \d\.\d MB$", capsys.readouterr().out)
    headings = ["Runs", "Configuration", "Held-out tasks", "Curves", "Levels", "Episodes", "Speed"]
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"] == [
        heading.lower().replace(" ", "-").replace("-tasks", "") for heading in headings
    ]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert [name for name, n in Counter(ids).items() if n > 1] == []
    # Nothing is loaded: all addresses are in the page. Namespaces are names.
    links = [
        attributes[name]
        for _, attributes in page.elements
        for name in ("src", "href", "xlink:href")
        if name in attributes
    ]
    assert {link.partition(":")[0] if link.startswith("data:") else link[0] for link in links} == {"data", "#"}
    assert all(link[1:] in ids for link in links if link.startswith("#"))
    assert set(re.findall(r"https?://[\w./]+", page.text)) == {
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/2000/svg",
    }
    assert "url(" not in re.sub(r"url\(#f[0-9a-f]{8}-\w+\)", "", page.text)
    # The only script that may run is its own.
    (policy,) = [a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    own = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
    assert policy == f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{own}'"
    assert "No gallery: runs/a holds no checkpoint" in page.said
    assert "plr: no episode: runs/a holds no checkpoint" in page.said


def test_numbers_on_the_page_are_those_of_the_tables(undrawn):
    page = report(make_run("runs/a"), make_run("runs/b", 2), make_run("runs/c", 0, 1, runner="dr"))
    assert page.table("method", "run")[1:] == [
        ["plr", "a", "0 to 1", "40", "4,000", "2 min", "250"],
        ["plr", "b", "2 to 3", "40", "4,000", "2 min", "250"],
        ["dr", "c", "0", "40", "4,000", "2 min", "250"],
    ]
    _, names, *rows = page.table("", "plr", "dr")
    assert names == ["task", "solved", "IQM", "each seed, %", "return", "solved", "return"]
    assert rows == [
        ["Rooms", "15.0%", "15.0%", "0 10 20 30", "0.500", "0.0%", "0.500"],
        ["Maze", "35.0%", "35.0%", "20 30 40 50", "0.500", "20.0%", "0.500"],
        ["all tasks", "25.0%", "25.0%", "10 20 30 40", "0.500", "10.0%", "0.500"],
    ]
    assert "solved rate on 2 held-out tasks: plr 25.0%, dr 10.0%" in page.said
    differing = dict(zip(*zip(*[(row[0], row[1:]) for row in page.tables[1]], strict=True), strict=True))
    assert differing["runner.name"] == ["plr", "dr"]
    assert "ppo.lr" not in differing
    assert "runner.replay_prob" in differing
    # The numbers behind a figure, as they are downloaded.
    (link,) = [a["href"] for tag, a in page.elements if a.get("download") == "curve-return.csv"]
    found = list(csv.DictReader(io.StringIO(base64.b64decode(link.partition(",")[2]).decode())))
    assert [row["mean"] for row in found if row["label"] == "plr"] == ["2.5", "3.5", "4.5", "5.5"]


def test_the_machines_that_runs_were_made_on_are_named():
    for name in ("runs/a", "runs/b"):
        make_run(name, "ab".index(name[-1]), 1)
    runs = [read_run("runs/a"), read_run("runs/b")]
    assert report_tables.origins_in_words(runs) == [
        "The machine is not recorded",
        "Compare speeds of one machine only.",
    ]
    small = Origin(0, "1.0", "abc123", "0.10.2", "cpu: 1 of 1 device (EPYC, 2 cores)")
    for run in runs:
        record(run.path / "origin.jsonl", small)
    words = "cpu: 1 of 1 device (EPYC, 2 cores). This package 1.0 (abc123), jax 0.10.2"
    assert report_tables.origins_in_words([read_run(run.path) for run in runs]) == [words]
    record(Path("runs/b/origin.jsonl"), dataclasses.replace(small, update=20, machine="gpu: H200"))
    page = Page(report_tables.runs_part(find_groups(["runs/a", "runs/b"])))
    assert f"{words}: a, b" in page.said
    assert "gpu: H200. This package 1.0 (abc123), jax 0.10.2: b from update 20" in page.said
    assert page.said.endswith("Compare speeds of one machine only.")


def test_five_seeds_have_the_interval_of_the_statistics():
    groups = find_groups([make_run("runs/a", 0, 6)])
    page = Page(report_tables.held_out_table(groups, evaluated(groups)))
    rows = page.table("task", "solved", "IQM", "95% interval")
    interval = summarise(np.array([[0.1 * seed + 0.2 * j for j in (0, 1)] for seed in range(6)])).interval
    assert rows[-1][3] == " to ".join(f"{100 * end:.1f}%" for end in interval)


def test_text_of_others_stays_text():
    folder = make_run(f"runs/{EVIL.replace('/', '')}", log_dir=EVIL, model={"name": EVIL})
    make_tables(folder, (0, 1), extra=f"level/new/{EVIL.replace('/', '_')}")
    rows = list(csv.DictReader((folder / "eval.csv").open()))
    table(folder / "eval.csv", [row | {"task": EVIL if row["task"] == "Maze" else row["task"]} for row in rows])
    clean = make_run("runs/b")
    label = "<b onclick>DR</b>"
    page = report(clean, f"--label={label}=runs/<*", "--title", EVIL)
    assert not {name for _, attributes in page.elements for name in attributes if name.startswith("on")}
    # The page's own style and script, and no element that the texts name.
    assert [tag for tag, _ in page.elements if tag in ("script", "img", "b", "style")] == ["style", "script"]
    for words in (EVIL, label, folder.name):
        assert " ".join(words.split()) in page.said


def page_named(name):
    """A page on which every text that comes from outside is `name`."""
    setting, figure = (name, [name]), Picture(name, (), Figure, (name,))
    shelves = [{"title": name, "told": name, "levels": [[0, name, name]] * n} for n in (2, 1)]
    gallery = html.part("gallery", name, name, {"images": [name], "shelves": shelves}, [name])
    reel = {"n": 2, "width": 1, "height": 1, "changes": name}
    parts = [
        html.part("missing", name),
        html.part("runs", [(0, name, Path("folder"), [name] * 5, name)], [name]),
        html.part("configuration", [name], name, [], name, [setting]),
        html.part("configuration", [name, name], "", [(name, [name, name])], name, [(name, [name, name])]),
        html.part("held_out", name, name),
        html.part("held_out_table", [(0, name, 1), (1, name, 1)], [name] * 3, [(name, [name] * 2)], [name]),
        html.part("figures", [(name, figure, html.svg(figure, name), name)], [name]),
        html.part("levels", [(0, name, gallery), (1, name, name)]),
        html.part("episodes", [[html.part("player", 0, name, name, reel, name, name)]], [name], False, {"a": name}),
    ]
    return Page(html.page(name, name, [(name, name, content) for content in parts]))


def test_hostile_names_are_escaped_in_every_part():
    plain, hostile = page_named("plain"), page_named(EVIL)
    assert [(tag, list(attributes)) for tag, attributes in hostile.elements] == [
        (tag, list(attributes)) for tag, attributes in plain.elements
    ]
    assert hostile.said.count(" ".join(EVIL.split())) == plain.said.count("plain") > 40
    assert hostile.block(f"episode-{EVIL}-0")["changes"] == EVIL
    # No block of numbers can end early.
    assert not any(set("<>&") & set(text) for text in hostile.scripts[:-1])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "eval.csv").unlink(), "There are no scores on held-out tasks: runs/a has no eval.csv"),
        (lambda run: (run / "metrics.csv").unlink(), "of the training: return has no numbers in metrics.csv"),
        (lambda run: (run / "metrics.csv").write_text("update;seed\n1;0\n"), "metrics.csv cannot be read: line 1"),
        (lambda run: (run / "eval.csv").write_text("update,seed,task\n1,0,Rooms\n"), "unknown score 'solved_rate'"),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_made_is_a_sentence(damage, said, undrawn):
    damage(make_run("runs/a"))
    assert said in report("runs/a").said


def test_parts_for_which_jax_has_no_device_or_no_memory_are_sentences(monkeypatch, undrawn):
    def fails(error):
        def work():
            raise error

        return work

    spent = made(fails(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")))
    assert "Not made: out of memory: RESOURCE_EXHAUSTED: out of memory; another process" in spent
    make_run("a")
    monkeypatch.setattr(jax, "devices", fails(RuntimeError("no backend")))
    assert main(["a"]) == 0
    page = Path("report.html").read_text()
    assert "No gallery: " in page
    assert page.count("jax finds no device (no backend)") == 2


def test_a_table_that_cannot_be_read_is_told_beside_the_page_too(undrawn, capsys):
    path = make_run("runs/a") / "metrics.csv"
    content = path.read_text()
    path.write_text(content.replace(",", ";"))
    report("runs/a", "--no-episodes", "--n-levels=0")
    assert capsys.readouterr().err.startswith("warning: runs/a/metrics.csv cannot be read: line 1 names no column")
    path.write_text(content.replace("\n", "\n\0\0\n", 1))
    report("runs/a", "--no-episodes", "--n-levels=0")
    assert capsys.readouterr().err.startswith("warning: runs/a/metrics.csv: line 2 has 1 cells of ")


def test_one_run_shows_its_main_settings_and_several_equal_ones_say_so():
    one = Page(report_tables.configuration_part(find_groups([make_run("runs/a", 0, 1)])))
    assert "runner.name plr" in one.said
    both = Page(report_tables.configuration_part(find_groups(["runs/a", make_run("runs/b", 1, 1)])))
    assert "The 2 runs have the same settings." in both.said


# ---------------------------------------------------------------------------------------------------- the file


@pytest.mark.deep
def test_the_same_runs_give_the_same_file():
    make_run("runs/a")
    words = ["runs/a", "--no-episodes", "--n-levels=0"]
    page = report(*words)
    assert [attributes["id"] for tag, attributes in page.elements if tag == "section"][-2:] == ["curves", "speed"]
    assert report(*words).text == page.text
    assert sorted(path.name for path in Path().iterdir()) == ["report.html", "runs"]


def test_only_an_own_file_that_nobody_has_changed_is_replaced():
    out = Path("new/report.html")
    assert html.write_page(out, "<p>1") == out
    assert html.write_page(out, "<p>2") == out
    assert out.read_text().startswith("<p>2<!-- minimax-report ")
    out.write_text(out.read_text().replace("2", "3", 1))
    second, third = out.with_name("report-2.html"), out.with_name("report-3.html")
    assert html.write_page(out, "<p>4") == second
    assert out.read_text().startswith("<p>3")
    second.unlink()
    second.symlink_to("/nowhere")  # even if it leads nowhere, somebody has put it there
    assert html.write_page(out, "<p>5") == third
    assert second.is_symlink()
    assert sorted(path.name for path in out.parent.iterdir()) == ["report-2.html", "report-3.html", "report.html"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no run is given: name their folders first, as in minimax-report runs/*"),
        (["runs/b"], "unknown run 'runs/b': choose from runs/a (did you mean 'runs/a'?)"),
        (["runs"], "runs is not the folder of a run: it has no config.yaml (it holds 1, such as runs/a)"),
        (["runs/a", "runs/a"], "runs/a is named twice: name each run once"),
        (["runs/a", "--label", "x"], "--label is 'x': it must be NAME=PATTERN, as in 'DR=runs/dr-*'"),
        (["runs/a", "--out", "x.pdf"], "--out is 'x.pdf': it must be a file whose name ends with .html"),
        (["runs/a", "--out", "d.html"], "--out is 'd.html': it is a folder"),
        (["runs/a", "--out", "runs/a/config.yaml/r.html"],
         "--out is 'runs/a/config.yaml/r.html': runs/a/config.yaml is a file"),
        (["runs/a", "--no-episodes", "--greedy"], "--greedy is without a value, which means nothing *"),
        (["runs/a", "--n-levels", "0", "--n-checkpoints", "3"], "--n-checkpoints is '3', which means nothing *"),
        (["runs/a", "--n-levels", "-1"], "--n-levels is -1: it must be at least 0"),
        (["runs/a", "--n-checkpoints", "0"], "--n-checkpoints is 0: it must be at least 1"),
        (["runs/a", "--x", "hours"], "unknown x 'hours': choose from updates, env_steps, seconds"),
        (["runs/a", "--tasks", "Labyrint"], "*(did you mean 'Labyrinth'?)"),
        (["runs/a", "--by", "lrr"], "*unknown setting 'lrr'*"),
        (["runs/a", "--titel", "x"], "unknown flag --titel: choose from *(did you mean --title?)"),
        (["runs/a", "--plugins", "no_such_thing"], "plugin 'no_such_thing' cannot be imported: *"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(words, message, capsys):
    make_run("runs/a")
    Path("d.html").mkdir()
    assert main(words) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert fnmatch(error, f"error: {message.replace('[', '[[]')}\n"), error
    assert sorted(path.name for path in Path().iterdir()) == ["d.html", "runs"]


def test_what_a_run_names_is_not_imported_unless_the_user_names_it_too(capsys, monkeypatch, undrawn):
    make_run("runs/a", plugins=["named_by_a_run"])
    Path("named_by_a_run.py").write_text("raise RuntimeError('imported')")
    monkeypatch.delitem(sys.modules, "named_by_a_run", raising=False)
    assert main(["runs/a"]) == 2
    assert "add --plugins named_by_a_run if you trust it" in capsys.readouterr().err
    report("runs/a", "--plugins")
    assert "named_by_a_run" not in sys.modules


@pytest.mark.deep
def test_bad_input_is_refused_before_anything_heavy_is_imported():
    slow = ("matplotlib", "orbax", "scipy.stats", "distrax")
    code = (
        "import sys\nfrom minimax_lib.commands.report import main\n"
        f"status = main(['nothing'])\nprint(status, [m for m in {slow} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n"
    assert done.stderr == "error: run 'nothing' does not exist\n"


# ----------------------------------------------------------------------------------------------- levels of checkpoints


@pytest.fixture(scope="module")
def replaying(tmp_path_factory):
    """A run of robust PLR with three checkpoints, and tables."""
    folder = tmp_path_factory.mktemp("runs") / "plr"
    save_tiny_run(folder, {"name": "plr", "capacity": 6}, updates=(2, 4, 6), seed=5)
    make_tables(folder, (5,))
    return folder


@pytest.fixture(scope="module")
def gallery(replaying):
    return report_levels.gallery_of(read_run(replaying), None, 4, 12)


@pytest.mark.deep
def test_a_gallery_shows_the_best_levels_of_each_checkpoint(replaying, gallery):
    assert [shelf.update for shelf in gallery.shelves] == [2, 4, 6]
    assert gallery.seed == 5
    run = minimax_lib.load_run(replaying, checkpoint=4)
    kept = run.level_buffer
    shelf = gallery.shelves[1]
    assert shelf.told == "6 levels in 6 slots"
    slots = kept.ranked[:4]
    assert [score for score, _ in shelf.captions] == [f"score {kept.scores[slot]:.3f}" for slot in slots]
    for slot, (_, words) in zip(slots, shelf.captions, strict=True):
        walls = int(np.asarray(kept.levels.wall_map[slot]).sum())
        facts = words.replace("\N{NO-BREAK SPACE}", " ").split(", ")
        assert facts[:3] == [f"age {kept.ages[slot]:,}", f"{kept.n_mutations[slot]} edits", f"{walls} walls"]
    # All checkpoints hold the same six levels: each is drawn once, without the paper round it.
    assert len(gallery.pictures) <= 6
    assert {picture.shape for picture in gallery.pictures} == {(140, 140, 3)}
    best = run.draw(jax.tree.map(lambda x: x[slots[:1]], kept.levels))
    assert np.array_equal(gallery.pictures[shelf.pictures[0]], best[20:160, 20:160])


@pytest.mark.deep
def test_a_teachers_designs_are_a_gallery_too(replaying, monkeypatch):
    seen, levels = [], minimax_lib.load_run(replaying).level_buffer.levels

    def designs(run, n, key):
        seen.append((run.update, key))
        return jax.tree.map(lambda x: x[:n], levels)

    def no_levels(run):
        raise ValueError("it keeps no levels")

    monkeypatch.setattr(report_levels, "fresh_levels", designs)
    monkeypatch.setattr(report_levels, "has_teacher", lambda run: True)
    monkeypatch.setattr(LoadedRun, "level_buffer", property(no_levels))
    gallery = report_levels.gallery_of(read_run(replaying), None, 3, 2)
    assert [update for update, _ in seen] == [shelf.update for shelf in gallery.shelves] == [2, 6]
    assert seen[0][1] == seen[1][1]  # what differs is the teacher
    assert [name for name, _ in gallery.shelves[0].captions] == ["design 1", "design 2", "design 3"]
    said = Page(report_levels.gallery_html(gallery, "levels-0")).said
    assert said.startswith("Designs of the teacher of plr, seed 5.")


def test_a_gallery_as_html_shows_the_newest_checkpoint_and_holds_all(gallery):
    page = Page(report_levels.gallery_html(gallery, "levels-0"))
    content = page.block("levels-0")
    assert [shelf["title"] for shelf in content["shelves"]] == ["update 2", "update 4", "update 6"]
    pictures = [np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))
                for url in content["images"]]  # fmt: skip
    assert all(np.array_equal(one, other) for one, other in zip(pictures, gallery.pictures, strict=True))
    shown = [attributes["src"] for tag, attributes in page.elements if tag == "img"]
    assert shown == [content["images"][image] for image, _, _ in content["shelves"][-1]["levels"]]
    (slider,) = [attributes for tag, attributes in page.elements if tag == "input"]
    assert (slider["min"], slider["max"], slider["value"]) == ("0", "2", "2")


def test_checkpoints_are_spread_evenly():
    assert report_levels.spread([1, 2, 3], 5) == [1, 2, 3]
    assert report_levels.spread(range(0, 101), 5) == [0, 25, 50, 75, 100]
    assert report_levels.spread(range(10), 1) == [9]


@pytest.mark.deep
def test_damaged_checkpoints_are_left_out_and_named(replaying, tmp_path):
    folder = tmp_path / "plr"
    shutil.copytree(replaying, folder)

    def damage(update):
        for path in (folder / "checkpoints" / str(update)).rglob("*"):
            if path.is_file():
                path.write_bytes(b"damaged")

    damage(4)
    gallery = report_levels.gallery_of(read_run(folder), None, 2, 12)
    assert [shelf.update for shelf in gallery.shelves] == [2, 6]
    assert gallery.notes[0].startswith("The checkpoint of update 4 is left out: ")
    damage(2)
    damage(6)
    groups = find_groups([folder])
    assert "No gallery: " in Page(report_levels.levels_part(groups, None, 2, 12)).said
    said = Page(report_episodes.episodes_part(groups, None, ("Labyrinth",), False, print)).said
    assert said.startswith("plr: no episode: ")


def test_a_method_without_levels_and_an_environment_without_pictures_say_so(replaying, monkeypatch):
    with pytest.raises(ValueError, match="Environment has no method to draw its episodes"):
        report_episodes.tasks_of(types.SimpleNamespace(env=Environment()), ("validation",))

    def no_levels(run):
        raise ValueError("it keeps no levels")

    monkeypatch.setattr(LoadedRun, "level_buffer", property(no_levels))
    said = Page(report_levels.levels_part(find_groups([replaying]), None, 4, 12)).said
    assert said == "plr No gallery: it keeps no levels."


# ------------------------------------------------------------------------------------------------------------ episodes


def frames_of(reel, tiles, changes):
    """The frames of a reel, put together again as the page's script does it."""
    size, across = report_episodes.SIZE, -(-reel["width"] // report_episodes.SIZE)
    grid, frames, at = np.zeros(across * -(-reel["height"] // size), int), [], 0
    for _ in range(reel["n"]):
        n = changes[at]
        pairs = changes[at + 1 : at + 1 + 2 * n].reshape(-1, 2)
        grid[pairs[:, 0]] = pairs[:, 1]
        at += 1 + 2 * n
        rows = grid.reshape(-1, across)
        y, x = np.divmod(rows, tiles["columns"])
        whole = np.array(
            [[tiles["picture"][b * size : (b + 1) * size, a * size : (a + 1) * size] for a, b in zip(r, s, strict=True)]
             for r, s in zip(x, y, strict=True)]
        )  # fmt: skip
        whole = whole.swapaxes(1, 2).reshape(rows.shape[0] * size, across * size, 3)
        frames.append(whole[: reel["height"], : reel["width"]])
    assert at == len(changes)
    return frames


def test_a_reel_gives_every_frame_back():
    generator = np.random.default_rng(0)
    frames = [np.full((50, 70, 3), 9, np.uint8)]
    for _ in range(6):
        later = frames[-1].copy()
        later[generator.integers(50), generator.integers(70)] = generator.integers(256, size=3)
        frames.append(later)
    frames.append(generator.integers(256, size=(30, 90, 3)).astype(np.uint8))  # of another size
    tiles = report_episodes.TileSheet()
    reel = report_episodes.packed(report_episodes.reel_of(frames, tiles))
    assert (reel["n"], reel["width"], reel["height"]) == (8, 90, 50)
    changes = np.frombuffer(zlib.decompress(base64.b64decode(reel["changes"])), "<u4")
    found = frames_of(reel, {"columns": tiles.columns, "picture": tiles.picture()}, changes)
    for frame, one in zip(frames, found, strict=True):
        paper = np.full((50, 90, 3), 255, np.uint8)
        paper[: frame.shape[0], : frame.shape[1]] = frame
        assert np.array_equal(one, paper)


def test_pictures_keep_their_colours_and_clear_only_plain_paper():
    for n in (1, 2, 256, 257):
        colours = np.arange(n) * 65_213 % 2**24
        picture = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=-1).astype(np.uint8)[None]
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(html.png(picture))).convert("RGB")), picture)
    plain = np.array([[[255, 255, 255], [0, 0, 0], [150, 150, 150]]], np.uint8)
    clear = np.asarray(Image.open(io.BytesIO(html.png(plain, clear_white=True))).convert("RGBA"))
    assert clear[0, :, 3].tolist() == [0, 255, 255]
    plain[0, 2] = 200
    soft = np.asarray(Image.open(io.BytesIO(html.png(plain, clear_white=True))).convert("RGBA"))
    assert soft[0, :, 3].tolist() == [255, 255, 255]


class Strip:
    """Draws a walk along a strip of 13 cells, which leaves no other mark."""

    def draw_state(self, state):
        picture = np.full((140, 260, 3), 60, np.uint8)
        picture[60:80, 20 * state : 20 * state + 20] = 200, 0, 0
        return picture


def walks(run, tasks, key=None, greedy=False):
    """Episodes of four steps, without a network."""
    return {
        task: Episode(Strip(), task, np.arange(5), episode_return=0.25, length=4, progress=1.0, facts={})
        for task in tasks
    }


def test_episodes_are_stepped_through(replaying, monkeypatch):
    monkeypatch.setattr(LoadedRun, "play_tasks", walks)
    tasks = ["SixteenRooms", "Labyrinth", "StandardMaze"]
    page = Page(report_episodes.episodes_part(find_groups([replaying]), None, tasks, False, print))
    assert [attributes["data-content"] for tag, attributes in page.elements if attributes.get("class") == "player"] == [
        f"episode-{task}-0" for task in tasks
    ]
    reel = page.block("episode-Labyrinth-0")
    assert (reel["n"], reel["width"], reel["height"]) == (5, 260, 140)
    assert "plr solved in 4 steps, return 0.250 (plr, seed 5, update 6)" in page.said
    monkeypatch.setattr(report_episodes, "MOST_STEPS", 2)
    page = Page(report_episodes.episodes_part(find_groups([replaying]), None, ("Labyrinth",), False, print))
    assert page.block("episode-Labyrinth-0")["n"] == 3
    assert "(the first 2 are shown)" in page.said


# ------------------------------------------------------------------------------------------------------------- browser


@pytest.fixture(scope="module")
def shown(replaying, tmp_path_factory):
    """The report of a run with levels and episodes."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoadedRun, "play_tasks", walks)
        words = [str(replaying), "--out", str(file), "--title", EVIL, "--tasks", "Labyrinth"]
        assert main(words) == 0
    assert file.stat().st_size < 500_000
    return file


PIXELS = "document.querySelector('canvas').toDataURL()"
READY = "document.documentElement?.dataset.ready === 'yes'"


@pytest.mark.deep
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_the_page_works_in_a_browser(shown, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        browser.open(shown, READY)
        check_gallery(browser)
        check_player(browser)
        check_theme(browser)
        for width in (320, 1200):
            browser.resize(width, 800)
            assert browser.value("document.documentElement.scrollWidth") == width, "the page is wider than the screen"
        assert browser.value("document.title") == EVIL
        assert browser.messages == []
        assert [url for url in browser.requests if not url.startswith("data:")] == [shown.as_uri()]


def check_gallery(browser):
    gallery = "document.querySelector('.gallery')"
    caption = f"{gallery}.querySelector('.told output').textContent"
    image = f"{gallery}.querySelector('img').src"
    words = f"[...{gallery}.querySelectorAll('b')].map((b) => b.textContent).join()"
    assert browser.value(caption) == "update 6"
    newest = browser.value(words)
    before = browser.value(image)
    browser.value(f"{gallery}.querySelector('.back').click()")
    assert browser.value(caption) == "update 4"
    assert browser.value(words) != newest
    browser.value(f"{gallery}.querySelector('input').focus()")
    browser.key("Home")
    assert browser.value(caption) == "update 2"
    assert browser.value(f"{gallery}.querySelector('.back').disabled")
    browser.key("End")
    assert (browser.value(words), browser.value(image)) == (newest, before)


def check_player(browser):
    step = "document.querySelector('.player output').textContent"
    first = browser.value(PIXELS)
    assert browser.value(step) == "step 0 of 4"
    browser.value("document.querySelector('.player .forth').click()")
    assert browser.value(step) == "step 1 of 4"
    second = browser.value(PIXELS)
    assert second != first
    browser.value("document.querySelector('.player input').focus()")
    browser.key("ArrowRight")
    assert browser.value(step) == "step 2 of 4"
    browser.key("ArrowLeft")
    assert browser.value(PIXELS) == second  # back is as it was
    browser.key("Home")
    assert browser.value(PIXELS) == first
    browser.key(" ")  # plays
    assert browser.value("document.querySelector('.play').textContent") == "pause"
    browser.wait_for(f"{step} === 'step 4 of 4'")
    browser.wait_for("document.querySelector('.play').textContent === 'play'")


def check_theme(browser):
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.value(paper) == "rgb(255, 255, 255)"
    browser.value("document.getElementById('theme').focus()")
    browser.key("Enter")
    assert browser.value(paper) == "rgb(21, 23, 27)"
    # Text of the figures goes with the paper.
    assert browser.value("getComputedStyle(document.querySelector('svg text')).fill") == "rgb(230, 232, 236)"
    browser.key("Enter")
    assert browser.value(paper) == "rgb(255, 255, 255)"


def test_the_commands_of_the_documentation_are_understood():
    text = (ROOT / "docs" / "report.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"^minimax-report (.*)$", text, re.MULTILINE)
    assert lines
    for line in lines:
        assert parse(shlex.split(line, comments=True)).out.endswith(".html")

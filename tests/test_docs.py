"""README and docs: the commands parse, the flags exist, links lead somewhere, and quoted messages are real ones."""

import ast
import functools
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml
from doc_blocks import python_blocks, run_blocks

import minimax_lib
from docs.make.flags import COMMAND, commands
from minimax_lib.commands import play, train
from minimax_lib.config import parse, save_yaml, sweep, sweep_command
from minimax_lib.config.shipped import shipped_agents
from minimax_lib.config.words import as_typed
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.curricula.scores import SCORES
from minimax_lib.envs import registry
from minimax_lib.envs.grid import convert
from minimax_lib.envs.registry import FAMILIES
from minimax_lib.testing.envs import check_environment, check_teacher

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
RESULTS = [ROOT / "benchmarks" / "peers.md", *sorted((ROOT / "benchmarks" / "results").glob("*.md"))]
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
CONFIG = re.compile(r"runs/([\w.-]+)/config\.yaml")


@functools.cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Commands


def shell_commands(page: Path) -> Iterator[list[str]]:
    """The words of every command in the page's ```bash blocks."""
    for kind, text in BLOCK.findall(text_of(page)):
        if kind == "bash":
            for line in text.replace("\\\n", " ").splitlines():
                yield from split_commands(line)


def split_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line, without comments, loops and variables before them."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|"):
            yield words
            words = []
        elif words or not (word in ("do", "then", "time") or re.match(r"[A-Z_]+=", word)):
            words.append(word)


def ours(words: list[str]) -> tuple[str, list[str]] | None:
    """(command, its words) of a command of this package; None for any other."""
    if words[:2] in (["python", "train.py"], ["python", "evaluate.py"]):
        return f"minimax-{words[1].removesuffix('.py')}", words[2:]
    if words and words[0].startswith("--"):  # flags to be added to a command
        return "minimax-train", words
    return (words[0], words[1:]) if words and words[0].startswith("minimax-") else None


def runs_here(words: list[str]) -> bool:
    """Whether tests/test_doc_commands.py runs a command of a page. This file parses it too."""
    lone_flags, elided = words[0].startswith("--"), "..." in words
    # A terminal, a sweep that has been trained, and levels with ancestors: the tests of these have them.
    return not (lone_flags or elided or words[0] == "minimax-play" or {"--table", "lineage"} & set(words))


COMMANDS = {
    f"{named(page)}: {shlex.join(words)}": found
    for page in [*GUIDES, *RESULTS]
    for words in shell_commands(page)
    if (found := ours(words)) and page.name != "extending.md"  # tests/test_extending.py runs those
}


def parse_command(command: str, words: list[str]) -> None:
    """What the command does before it starts anything. ValueError for bad input; `--help` and `--list` exit."""
    if command == "minimax-train":
        parse(words)
        return
    if command == "minimax-sweep":
        _, name, flags = sweep_command.parse(words)
        sweep.read_sweep(name, flags)
        return
    module = importlib.import_module(f"minimax_lib.config.{command.removeprefix('minimax-')}")
    settings = module.parse(words)
    if command == "minimax-play" and settings.run in ("", *shipped_agents()):  # no other test runs it
        (play.watched if settings.run else play.walked)(settings)


def stand_in(word: str) -> str | None:
    """What stands for a word that says "put yours here"; None for one that can be left out."""
    return {"N": "4", "...": None, "$method": "plr", "runs/*": "runs/my-run"}.get(
        word,
        re.sub(r"\$\w+", "plr", word),  # of a loop
    )


@pytest.fixture(scope="module")
def files_of_the_pages(tmp_path_factory) -> Path:
    """A folder in which the files are that the pages speak of."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "configs").symlink_to(ROOT / "minimax_lib" / "configs")
    for name in ("benchmarks", "docs"):
        (folder / name).symlink_to(ROOT / name)
    for page in GUIDES:
        for name in CONFIG.findall(text_of(page)):
            path = folder / "runs" / name / "config.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            save_yaml(parse(["--name", name]), path)
        for kind, text in BLOCK.findall(text_of(page)):
            if kind == "yaml" and "vary:" in text:
                name = "lr.yaml" if "ppo.entropy_coef" in text else "search.yaml"
                (folder / name).write_text(text)
    return folder


@pytest.fixture
def folder(files_of_the_pages, monkeypatch):
    """The current folder is that of `files_of_the_pages`. What plugins register is forgotten again."""
    monkeypatch.chdir(files_of_the_pages)
    tables = (FAMILIES, RUNNERS._table, GENERATORS._table)
    before, modules = [dict(table) for table in tables], set(sys.modules)
    yield files_of_the_pages
    for table, items in zip(tables, before, strict=True):
        table.clear()
        table.update(items)
    for name in set(sys.modules) - modules:
        if name.startswith("docs."):  # what it has registered is forgotten: it must be imported again
            del sys.modules[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_a_page_parses(name, folder, capsys):
    command, words = COMMANDS[name]
    library = next((word.lower() for word in words if word in ("Gymnax", "Craftax")), "jax")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}")
    words = [word for word in map(stand_in, words) if word is not None]
    if {"--help", "--list"} & set(words):
        with pytest.raises(SystemExit, match="0"):
            parse_command(command, words)
        assert capsys.readouterr().out
    else:
        parse_command(command, words)


SHORT = ("maze/quickstart", "runs/quickstart/config.yaml", "runs/my-accel/config.yaml", "drift.yaml", "lr.yaml")
ENDS_SOON = ("--n-updates", "--list", "--help", "--dry-run", "--table", "--slurm", "--compare")


@pytest.mark.parametrize("page", [*GUIDES, *sorted((DOCS / "examples").glob("*.py"))], ids=named)
def test_a_training_ends_in_minutes_or_its_page_says_how_long_it_takes(page):
    """A reader types what stands there. So it has few updates, or a time stands beside it or in the sentence above."""
    lines = re.sub(r" \\\n +", " ", text_of(page)).splitlines()
    for i, line in enumerate(lines):
        words = line.partition("#")[0].split()
        names = {"train.py", "minimax-train", "minimax-sweep"}
        if not names & set(words[:3]) or "..." in words or line.startswith(("$", "|", "error", "#!")):
            continue
        begin = max((j for j in range(i) if lines[j].startswith("```")), default=i)
        said = " ".join([line, *lines[max(0, begin - 4) : begin]])
        timed = re.search(r"\b(seconds?|minutes?|hours?|days|weeks)\b", said)
        assert timed or {*SHORT, *ENDS_SOON} & set(words), f"{page.name} does not say how long this takes: {line}"


def test_the_commands_are_found():
    assert len(COMMANDS) > 40
    assert {command for command, _ in COMMANDS.values()} >= {"minimax-train", "minimax-evaluate", "minimax-sweep"}
    assert list(split_commands("FOO=1 a b && c 'd e' | f; do g  # h")) == [["a", "b"], ["c", "d e"], ["f"], ["g"]]
    with pytest.raises(ValueError, match="unknown flag"):
        sweep_command.parse(["lr.yaml", "--jbs", "2"])


# Flags

CONTEXTS = [  # what must be chosen for a flag to be there
    [],
    *(["--runner", name] for name in ("plr", "accel", "traced", "cenie", "sfl", "ncc", "paired")),
    *(
        ["--runner", "tasks", "--runner.core", name]
        for name in ("plr", "online_learning_progress", "sfl", "stratified", "omni", "sequential")
    ),
    *(["--env", "Pendulum", "--runner", "box", "--runner.core", name] for name in ("annealing", "expanding_box")),
    ["--runner", "plr", "--runner.generator", "finite"],
    ["--runner", "plr", "--runner.generator", "teacher", "--runner.n-students", "2"],
    ["--model", "s5"],
    ["--env", "Pendulum"],
    ["--env", "Gymnax"],
]
PLACEHOLDERS = {
    "N": ["4", "5", "0"],  # some settings must divide others, or be odd
    "X": ["0.5"],
    "NAME": ["plr", "max_mc", "relative_regret", "lstm"],
}
SPAN = re.compile(r"`((?:--[a-z]|minimax-)[^`]*)`")
PROSE = [page for page in GUIDES if page.name not in ("flags.md", "metrics.md", "extending.md")]
TABLES = ("coming_from.md",)
UNKNOWN = "unknown setting"


def spans(page: Path) -> list[str]:
    """The flags and commands that the page names in its text: of a table of two libraries, those on the right."""
    text = BLOCK.sub("", text_of(page))
    if page.name in TABLES:
        text = "\n".join(line.rsplit("|", 2)[1] if line.startswith("|") else "" for line in text.splitlines())
    return list(dict.fromkeys(SPAN.findall(text)))


def can_be_typed(span: str) -> bool:
    """Whether some command takes it, in some context, with some value for each placeholder."""
    words = shlex.split(span)
    if not words[0].startswith("--"):
        return True  # whole commands are looked at above, and by the tests of the commands
    for context in CONTEXTS:
        if set(words) & {word for word in context if word.startswith("--")}:
            continue  # it chooses for itself
        for i in range(max(map(len, PLACEHOLDERS.values()))):
            values = [
                PLACEHOLDERS[word][i % len(PLACEHOLDERS[word])] if word in PLACEHOLDERS else word for word in words
            ]
            try:
                parse([*context, *values])
            except ValueError as error:
                if str(error).startswith(UNKNOWN):
                    break  # with any value
                continue
            return True
    return False


@pytest.mark.parametrize("span", spans(DOCS / "coming_from.md"))
def test_what_replaces_a_flag_of_another_library_can_be_typed(span, folder):
    assert can_be_typed(span), span


@functools.cache
def known_flags() -> frozenset[str]:
    """Every flag that there is, with the settings of groups inside other groups."""
    found = set(re.findall(r"`(--[a-z][\w.-]*)", text_of(DOCS / "flags.md")))
    found |= set(re.findall(r"`(--[a-z][\w.-]*)", text_of(DOCS / "sweeps.md")))
    for inner, outer in (
        ("--model.", "--runner.teacher.model."),
        ("--runner.teacher.design.", "--runner.generator.design."),
        ("--model.", "--runner.generator.model."),
        ("--runner.core.", "--runner.core.inner."),
    ):
        found |= {flag.replace(inner, outer, 1) for flag in found if flag.startswith(inner)}
    return frozenset(found | {"--help", "--list", "--config"})


# Of other programs.
FOREIGN = {"--xpid"}


@pytest.mark.parametrize("page", PROSE, ids=named)
def test_every_flag_that_a_page_names_exists(page):
    unknown = []
    for span in spans(page):
        for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*", span):
            plain = re.sub(r"(^--|\.)no-", r"\1", flag.replace("_", "-").rstrip("."))
            plain = re.sub(r"^--(vary|settings)\.", "--", plain)  # of a sweep
            if not ({plain, flag} & known_flags() or plain in FOREIGN or is_group(plain)):
                unknown.append(flag)
    assert not unknown


def is_group(flag: str) -> bool:
    """Whether settings begin with it, as those of --ppo do."""
    return any(known.startswith(f"{flag}.") for known in known_flags())


def test_the_page_about_flags_is_up_to_date():
    # In its own process: other tests register environments and models of theirs.
    made = subprocess.run([sys.executable, "-m", COMMAND.split()[2]], capture_output=True, text=True, check=True)
    assert (DOCS / "flags.md").read_text(encoding="utf-8") == made.stdout, f"run: {COMMAND}"


def test_the_page_about_flags_has_every_command():
    scripts = re.findall(r'"(minimax-\w+)=', (ROOT / "setup.py").read_text())
    assert set(scripts) <= {"minimax-train", *commands()}


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.*)$", BLOCK.sub("", text_of(page)), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).strip().lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return set(found)


@pytest.mark.parametrize("page", [*GUIDES, *RESULTS, ROOT / "CHANGELOG.md"], ids=named)
def test_links_lead_somewhere(page):
    broken = []
    for link in re.findall(r"\]\(([^()\s]+)\)", CODE.sub("", text_of(page))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else Path(os.path.normpath(page.parent / path))
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_is_in_the_menu():
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!!python", lambda *_: None)
    Loader.add_multi_constructor("tag:yaml.org,2002:python", lambda *_: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    files = set(re.findall(r"[\w/.]+\.md", str(nav)))
    inside = {file for file in files if not file.startswith("repository/")}
    # A notebook becomes a page on the site.
    notebooks = {f"notebooks/{path.stem}.md" for path in DOCS.glob("notebooks/*.ipynb")}
    assert {path.name for path in DOCS.glob("*.md")} | notebooks == inside
    assert all((ROOT / file.removeprefix("repository/")).exists() for file in files - inside)


def test_every_public_name_is_in_the_reference():
    shown = re.findall(r"^::: minimax_lib\.(\w+)$", text_of(DOCS / "api.md"), re.MULTILINE)
    assert set(shown) == set(minimax_lib.__all__) - {"__version__"}


# Messages

HELP = DOCS / "troubleshooting.md"
N_TEXTS = 3  # a message is put together of so many at most
CONSOLE = [
    (command, message)
    for page in (HELP, DOCS / "coming_from.md")
    for kind, text in BLOCK.findall(text_of(page))
    if kind == "console"
    for command, message in re.findall(r"^\$ (.*)\n((?:(?!\$ ).+\n?)+)", text, re.MULTILINE)
]
MESSAGES = [line for kind, text in BLOCK.findall(text_of(HELP)) if kind == "text" for line in text.splitlines() if line]


@pytest.mark.parametrize(("command", "message"), CONSOLE, ids=[command for command, _ in CONSOLE])
def test_a_refusal_is_the_one_that_the_page_shows(command, message, folder):
    name, *words = shlex.split(command)
    assert name == "minimax-train"
    with pytest.raises(ValueError, match=r".") as refused:
        train.check(parse(words))
    found = f"error: {as_typed(str(refused.value), words)}"
    pattern = ".*".join(re.escape(part) for part in message.strip().split("..."))
    assert re.fullmatch(pattern, found), found


@functools.cache
def texts_of_the_code() -> tuple[tuple[str, ...], ...]:
    """The texts in the code, each as the parts between its values, without the short ones."""
    found: set[tuple[str, ...]] = set()
    for path in sorted((ROOT / "minimax_lib").rglob("*.py")):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.JoinedStr):
                found.add(tuple(parts_of(node)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                found.add((node.value,))
    return tuple(parts for parts in found if sum(map(len, fixed_of(parts))) >= 10)


def fixed_of(parts: tuple[str, ...]) -> list[str]:
    """The parts of a text that are not values."""
    return [part for part in parts if part != "\0" and part.strip()]


def parts_of(text: ast.JoinedStr) -> Iterator[str]:
    for value in text.values:
        if isinstance(value, ast.Constant):
            yield str(value.value)
        else:
            yield "\0"


def covered(message: str) -> float:
    """The share of a message that stands in texts of the code, of which the longest count."""
    # Who typed a flag is told about the flag. `...` stands for what is not the code's.
    message = re.sub(r"error: --([\w-]+) is", lambda flag: f"error: {flag[1].replace('-', '_')} is", message)
    lengths = [0]
    for parts in texts_of_the_code():
        fixed = fixed_of(parts)
        if not all(part in message for part in fixed):
            continue
        pattern = "".join(r".{1,200}?" if part == "\0" else re.escape(part) for part in parts)
        if re.search(pattern, message):
            lengths.append(sum(map(len, fixed)))
    return sum(sorted(lengths, reverse=True)[:N_TEXTS]) / len(message.replace("...", ""))


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_message_is_one_of_the_code(message):
    assert covered(message) > 0.4, covered(message)


def test_a_message_that_the_code_has_not_is_noticed():
    assert covered("error: the flux of seed 3 was too low for the capacitor, so that nothing could be done") < 0.3


# Python


def traced(page: Path, folder: Path, **names) -> dict:
    """What the page's Python has defined, with shapes in place of arrays: every line runs, and nothing is compiled."""
    found: dict = {}
    jax.eval_shape(lambda: found.update(run_blocks(page, folder, **names)))
    return found


def compiled(text: str, *wanted: str) -> dict[str, Any]:
    """What the text has defined under these names. It runs as one program."""

    def run() -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(compile(text, "<page>", "exec"), names)
        return {name: names[name] for name in wanted}

    return jax.jit(run)()


def test_the_python_of_the_readme_runs(tmp_path):
    training, curriculum, foreign = [text for _, text in python_blocks(ROOT / "README.md")]
    names: dict[str, Any] = {}
    jax.eval_shape(lambda: exec(compile(training, "README.md", "exec"), names))
    assert names["state"].clock.shape == ()
    assert names["metrics"].keys() >= {"loss", "return"}
    own = curriculum[curriculum.index("@dataclasses") :].strip()
    file = (DOCS / "examples" / "hard_levels.py").read_text(encoding="utf-8")
    assert own in re.sub(r'(class HardLevels.*\n) .*"""\n\n', r"\1", file)
    assert foreign.strip().count("\n") < 11, "the README says eleven lines"
    exec(compile(foreign, "README.md", "exec"), names)
    names["envs"].reset(seed=0)
    assert names["envs"].step(names["envs"].action_space.sample())[1].shape == (8,)


def test_the_python_of_the_page_on_environments_runs(tmp_path, monkeypatch):
    asked = []
    for check in (check_environment, check_teacher):  # they are run by other tests

        def looked(*given, check=check):
            asked.append(inspect.signature(check).bind(*given).arguments)

        monkeypatch.setattr(minimax_lib.testing.envs, check.__name__, looked)
    maze = minimax_lib.make_env("AMaze", height=5, width=5, n_walls=4)
    teacher = minimax_lib.make_ued_env("AMaze", design={"n_walls": 25}).teacher
    key = jax.random.key(0)

    def designed():
        return teacher.reset(key, teacher.sample_level(key))[0]

    state = jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), jax.eval_shape(designed))
    names = {"jax": jax, "minimax_lib": minimax_lib, "my_env": maze, "maze": maze, "key": key, "designed": state}
    found = traced(DOCS / "environments.md", tmp_path, **names)
    assert [next(iter(given)) for given in asked] == ["env", "pair"]
    assert found["ts"].obs


def test_the_python_of_the_page_on_gridworld_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "is_valid", jax.jit(convert.is_valid))  # one program, not one for each operation
    level = run_blocks(DOCS / "gridworld.md", tmp_path, jax=jax)["level"]
    assert level.grid.shape == (4, 5)


def test_the_python_of_the_page_on_neural_mmo_runs(tmp_path):
    """With shapes alone; the world of the trained agent is played by a deep test (`test_crowds.py`)."""
    blocks = [block for _, block in python_blocks(DOCS / "nmmo.md")[:2]]
    (tmp_path / "page.md").write_text("".join(f"```python\n{block}```\n" for block in blocks), encoding="utf-8")
    found = traced(tmp_path / "page.md", tmp_path)
    assert found["ts"].obs["tiles"].shape == (24, 15, 15, 1)
    assert [found["env"].task_name(number) for number in range(3)] == [
        "AND(KillsInSteps,EAT_FOOD_5)",
        "ADD(MUL(EAT_FOOD_5,0.5),0.5)",
        "KillsInSteps",
    ]


def test_the_python_of_the_page_on_curricula_is_that_of_its_file():
    source = (DOCS / "examples" / "hard_levels.py").read_text(encoding="utf-8")
    blocks = [text for _, text in python_blocks(DOCS / "curricula.md")]
    complete = [text for text in blocks if text.startswith("import jax\n")]
    assert len(complete) == 1
    names = compiled(complete[0], "state", "tasks")  # the one on task curricula
    assert names["state"].seen.sum() == len(set(names["tasks"].tolist()))
    assert all(text.strip() in source for text in blocks if text not in complete)


def test_the_python_of_the_page_on_tasks_is_that_of_its_file():
    source = (DOCS / "examples" / "forgotten_tasks.py").read_text(encoding="utf-8")
    first, *own = [text for _, text in python_blocks(DOCS / "tasks.md")]
    names = compiled(first, "state", "tasks")
    assert names["state"].boring.tolist() == [True, False, False]
    assert set(names["tasks"].tolist()) <= {1, 2}
    parts = [part.strip() for text in own for part in re.split(r"\n\n\n(?=class|@)", text)]
    assert len(parts) == 4  # the imports, the state, the curriculum, its registration
    assert all(part in source for part in parts[1:])


def test_the_python_of_the_page_on_opponents_is_that_of_its_file(monkeypatch):
    # The page registers an environment, which must not stay.
    monkeypatch.setattr(registry, "FAMILIES", {cls: f for cls, f in registry.FAMILIES.items() if f.name != "Race"})
    source = (DOCS / "examples" / "race.py").read_text(encoding="utf-8")
    score, game, check = [text for _, text in python_blocks(DOCS / "opponents.md")]
    assert game.strip() in source
    names: dict[str, Any] = {}
    monkeypatch.setattr(SCORES, "_table", dict(SCORES._table))
    exec(compile(score, "opponents.md", "exec"), names)
    assert "best_agent_return" in SCORES
    exec(compile(game, "opponents.md", "exec"), names)
    exec(compile(check, "opponents.md", "exec"), names)


def test_the_python_of_the_tutorials_is_that_of_their_files(tmp_path, monkeypatch):
    """And every line that a curriculum adds to the script, but for its imports, is explained."""
    *parts, last = [text for _, text in python_blocks(DOCS / "tutorials.md")]
    files = {
        name: (DOCS / "examples" / f"{name}.py").read_text(encoding="utf-8") for name in ("task_gymnasium_ppo", "doors")
    }
    own = [text for text in parts if text in files["task_gymnasium_ppo"]]
    added = [line for line in files["task_gymnasium_ppo"].splitlines() if "  # TASKS" in line and "import" not in line]
    assert len(added) <= 11
    assert all(any(line in text for text in own) for line in added)
    assert [text in files["doors"] for text in parts[len(own) :]] == [True, True]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "FAMILIES", dict(registry.FAMILIES))
    asked = []
    monkeypatch.setattr(minimax_lib.testing.envs, "check_environment", lambda *given: asked.append(given))
    exec(
        compile(
            last.replace("jax.vmap(env.sample_level)", "jax.jit(jax.vmap(env.sample_level))"), "tutorials.md", "exec"
        ),
        {},
    )
    assert Path("doors.png").stat().st_size > 1000
    assert len(asked) == 1


def test_every_page_with_python_is_run_or_compared_with_the_code():
    run = {"README.md", "environments.md", "gridworld.md", "curricula.md", "extending.md", "loading.md", "pictures.md"}
    run |= {"plotting.md", "portable.md", "tasks.md", "opponents.md", "plr_on_one_page.md", "tutorials.md", "nmmo.md"}
    run |= {"prompts.md", "with_gymnasium.md"}
    assert {page.name for page in GUIDES if python_blocks(page)} <= run


EXCERPT = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_plr_on_one_page_is_the_code():
    """Each piece stands in its file, line for line, at some depth. Blank lines are as the formatter likes them."""
    pieces = EXCERPT.findall(text_of(DOCS / "plr_on_one_page.md"))
    assert len(pieces) >= 12
    for path, piece in pieces:
        code = re.sub(r"\n\s*\n", "\n", (ROOT / path).read_text(encoding="utf-8"))
        text = re.sub(r"\n\s*\n", "\n", piece)
        depths = [textwrap.indent(text, depth * " ") for depth in (0, 4, 8, 12)]
        assert any(f"\n{part}" in code for part in depths), f"docs/plr_on_one_page.md and {path} differ: {piece}"

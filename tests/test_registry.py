"""Registries: what is in, what is refused, and how the refusal reads."""

import dataclasses

import flax.linen as nn
import pytest

from minimax_lib.config import Config, from_dict, parse, to_dict
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.registry import register_curriculum
from minimax_lib.curricula.scores import SCORES, Score, register_score
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.family import Editing
from minimax_lib.envs.nmmo.task_specs import register_predicate, register_task_list
from minimax_lib.envs.registry import ENVS, FAMILIES, register_editing, register_env
from minimax_lib.models.registry import MODELS, register_model
from minimax_lib.registry import Registry, unknown_name
from minimax_lib.runners.build import make_runner


def test_lookup_register_and_name_of():
    table = Registry("colour", {"red": 1})
    table.register("green", 2)
    assert table["green"] == 2
    assert table.names() == tuple(table) == ("red", "green")
    assert table.name_of(2) == "green"
    assert "red" in table
    assert "blue" not in table


def test_a_taken_name_is_refused_but_repeating_a_registration_is_not():
    thing = object()
    table = Registry("colour", {"red": thing})
    table.register("red", thing)
    with pytest.raises(ValueError, match="colour 'red' is registered already"):
        table.register("red", object())


def test_unknown_names_are_one_line_with_the_nearest():
    with pytest.raises(ValueError, match=r"^unknown colour 'gren': choose from red, green \(did you mean 'green'\?\)$"):
        Registry("colour", {"red": 1, "green": 2})["gren"]
    assert str(unknown_name("env", "amaze", ["AMaze"])) == (
        "unknown env 'amaze': choose from AMaze (did you mean 'AMaze'?)"
    )
    assert "did you mean" not in str(unknown_name("env", "zzz", ["AMaze"]))


# ----------------------------------------------------------------------------------------- what a plugin registers


def teacher_in(words):
    """The name and settings of the teacher's design in what the flags ask for, which config.yaml will say too."""
    config = parse(words.split())
    tree = to_dict(config)
    assert from_dict(tree) == config
    return (tree["runner"].get("teacher") or tree["runner"]["generator"])["design"]


@pytest.mark.parametrize(
    ("words", "design"),
    [
        ("--runner paired", {"name": "AMaze", "n_walls": None, "noise_dim": 50}),
        ("--runner paired --runner.teacher.design.n-walls 7", {"name": "AMaze", "n_walls": 7}),
        ("--env Pendulum --runner paired", {"name": "Pendulum", "noise_dim": 10}),
        ("--env Pendulum --runner paired --runner.teacher.design.noise-dim 3", {"name": "Pendulum", "noise_dim": 3}),
        ("--env Pendulum --runner paired --runner.teacher.design auto", {"name": "Pendulum"}),
        ("--env Pendulum --runner plr --runner.generator teacher --runner.n-students 2", {"name": "Pendulum"}),
        ("--config maze/paired --env Pendulum", {"name": "Pendulum"}),
        ("--config pendulum/paired", {"name": "Pendulum", "noise_dim": 10}),
        ("--env GridWorld --runner paired", {"name": "GridWorld", "schedule": None}),
        ("--env Gymnax --runner paired", {"name": "auto"}),
    ],
)
def test_the_registered_teacher_is_the_default(words, design):
    assert design.items() <= teacher_in(words).items()


def test_in_python_too():
    from minimax_lib.curricula.levels.designed import PAIRED
    from minimax_lib.envs.pendulum import Pendulum, PendulumDesign

    config = Config(env=Pendulum(), runner=PAIRED())
    assert config.runner.teacher.design == PendulumDesign()
    make_runner(config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--env Gymnax --runner paired",
            "^no teacher is registered for Gymnax .*: choose .* has one: AMaze, GridWorld, Pendulum, BipedalWalker, "
            "LaserTag$",
        ),
        (
            "--env Gymnax --runner paired --runner.teacher.design.n-walls 3",
            "^runner.teacher.design.n_walls is not a setting",
        ),
        (
            "--env Pendulum --runner paired --runner.teacher.design AMaze",
            "^MazeDesign designs levels of AMaze, not of P",
        ),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused_in_one_line(words, message):
    with pytest.raises(ValueError, match=message) as error:
        make_runner(parse(words.split()))
    assert "\n" not in str(error.value)


@pytest.fixture
def scores(monkeypatch):
    monkeypatch.setattr(SCORES, "_table", dict(SCORES._table))


def longest(x):
    return x.episodes.count.sum(axis=0)


def test_a_score_is_registered_with_all_its_fields(scores):
    score = Score(longest, n_students=2, most_students=3, n_evals=4, meaning="episodes")
    assert register_score("longest", score) is SCORES["longest"] is score
    assert (
        register_score("longest", Score(longest, n_students=2, most_students=3, n_evals=4, meaning="episodes")) is score
    )
    assert register_score("plain", longest, n_evals=2) == Score(longest, n_evals=2)
    with pytest.raises(ValueError, match="is registered already"):
        register_score("plain", longest)


@pytest.mark.parametrize(
    ("score", "needs", "message"),
    [
        ("l1_value_loss", {}, "with function='l1_value_loss': it must be a Score, or a function of an Experience"),
        (Score, {}, "with function=<class .*: it must be a Score, or a function"),
        (Score(longest), {"n_evals": 2}, "with n_evals beside a Score: give them to the Score itself"),
        (longest, {"n_student": 2}, r"^unknown field of the score 'mine' 'n_student': .* mean 'n_students'\?\)$"),
        (longest, {"n_students": 0}, "with n_students=0: it must be a whole number of at least 1"),
        (longest, {"n_evals": True}, "with n_evals=True: it must be a whole number"),
        (
            longest,
            {"n_students": 3, "most_students": 2},
            "most_students=2: it must be none, or .* at least n_students, 3",
        ),
        (longest, {"needs_network": 1}, "with needs_network=1: it must be True or False"),
        (longest, {"quantity": 3}, "with quantity=3: it must be a function"),
    ],
)
def test_what_is_no_score_is_refused_in_one_line(score, needs, message, scores):
    with pytest.raises(ValueError, match=message) as error:
        register_score("mine", score, **needs)
    assert "\n" not in str(error.value)
    assert "mine" not in SCORES


@dataclasses.dataclass(frozen=True)
class Mandatory:
    width: int

    def build(self, *spaces): ...


@dataclasses.dataclass(frozen=True)
class Nothing(Environment):
    width: int = 3


def test_a_class_that_is_no_environment_is_refused_in_one_line():
    for enter in (lambda: register_env("Stranger", Mandatory), lambda: BatchEnv(Mandatory(3))):
        with pytest.raises(
            ValueError, match=r"^Mandatory must derive from minimax_lib\.envs\.base\.Environment"
        ) as error:
            enter()
        assert "\n" not in str(error.value)
    assert "Stranger" not in ENVS


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"held_out": 3}, "held_out=3: it must be a class, called as"),
        ({"groups": ["Left"]}, "groups=.*: it must be a dict of lists of held-out tasks"),
        ({"groups": {"all": "Left"}}, "groups=.*: it must be a dict of lists of held-out tasks"),
        ({"teacher": Nothing}, "teacher=.*: it must be a dataclass of settings with a method build"),
        ({"teacher": Mandatory}, "a teacher whose setting 'width' has no default"),
        ({"editing": 3}, "editing=3: it must be an Editing"),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_in_one_line(parts, message):
    with pytest.raises(ValueError, match=f"^environment 'Thing' has {message}") as error:
        register_env("Thing", Nothing, **parts)
    assert "\n" not in str(error.value)
    assert "Thing" not in ENVS


@pytest.mark.parametrize("name", ["", 3, None, ["x"], "a\nb", "a/b", "--x", "x" * 300, " x", "a b", "1st"])
@pytest.mark.parametrize(
    ("kind", "register"),
    [
        ("colour", lambda name: Registry("colour", {}).register(name, 1)),
        ("environment", lambda name: register_env(name, Nothing)),
        ("model", lambda name: register_model(name, type(MODELS["ff"]()))),
        ("score", lambda name: register_score(name, lambda experience: experience.best_return)),
        ("list of tasks", lambda name: register_task_list(name, ())),
        ("predicate", lambda name: register_predicate(name, max)),
        ("runner", lambda name: register_curriculum(name, DR)),
    ],
)
def test_a_name_that_cannot_be_typed_is_refused_in_one_line(kind, register, name):
    with pytest.raises(ValueError, match=f"^{kind} .* cannot be registered: a name must be text .* 60 at most$"):
        register(name)


@pytest.mark.parametrize(
    ("cls", "editing", "message"),
    [
        ("Thing", Editing(mutate=max), "editing is registered for 'Thing': it must be the class of an environment"),
        (Nothing, 3, "environment 'Nothing' has editing=3: it must be an Editing, or a function"),
        (Nothing, Editing(mutate=3), "environment 'Nothing' has an Editing with mutate=3: it must be a function"),
    ],
)
def test_editing_of_the_wrong_kind_is_refused_in_one_line(cls, editing, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        register_editing(cls, editing)
    assert cls not in FAMILIES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Nothing, "it must be a dataclass of settings with a method build"),
        (lambda: None, "it must be a dataclass of settings with a method build"),
        (Mandatory, "a setting without a default: give 'width' one"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=f"^model 'mine' is registered with .*{message}"):
        register_model("mine", settings)
    assert "mine" not in MODELS


@dataclasses.dataclass(frozen=True)
class Incomplete:
    """A network without what an agent asks for is refused before anything is compiled."""

    def build(self, observation_space, action_space):
        return nn.Dense(3)


def test_a_network_without_its_members_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(MODELS, "_table", MODELS._table | {"incomplete": Incomplete})
    with pytest.raises(
        ValueError, match=r"^Incomplete.build makes a Dense without init_carry, .*: derive it from"
    ) as error:
        make_runner(parse(["--model", "incomplete"]))
    assert "\n" not in str(error.value)

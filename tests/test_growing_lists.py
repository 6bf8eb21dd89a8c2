"""A list that grows, tasks that are retired, a random first stretch, and tasks that are only scored."""

import jax
import numpy as np
import pytest

from minimax_lib.portable.host import Host
from minimax_lib.tasks import (
    SFL,
    TSCL,
    BatchedUniform,
    Constant,
    Frontier,
    LearningProgress,
    ListedPLR,
    LongList,
    Masked,
    Online,
    ProductCurriculum,
    RandomStart,
    RobustPLR,
    Sequential,
    Stage,
    Strata,
    Uniform,
    UniformOver,
    episodes_needed,
)
from minimax_lib.tasks.spaces import Box, Discrete, multi_discrete

N, MORE = 5, 8
KINDS = {
    "plr": lambda n: ListedPLR(n, alpha=0.5),
    "online": lambda n: Online(LearningProgress(n, unseen="keep"), every=7),
    "frontier": Frontier,
    "long frontier": lambda n: LongList(Frontier(n)),
    "long plr": lambda n: LongList(ListedPLR(n)),
}
DEEP = {"tscl": TSCL, "sfl": lambda n: SFL(n, unseen="keep"), "lp": LearningProgress, "uniform": Uniform}


def told(host: Host, first: int, last: int) -> None:
    """Results of the first N tasks alone."""
    for k in range(first, last):
        rng = np.random.default_rng(k)
        tasks = rng.integers(0, N, 6)
        score = rng.random(6) if host.reads_scores else None
        host.report(tasks, rng.random(6) < 0.5, rng.random(6), rng.integers(1, 9, 6), score=score)
        if episodes_needed(host.core):
            host.evaluated(np.resize(rng.random(N), host.space.n), np.arange(host.space.n) < N)


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(name, marks=pytest.mark.deep) for name in DEEP)])
def test_a_grown_list_is_as_one_that_was_long_from_the_beginning(kind):
    make = (KINDS | DEEP)[kind]
    grown, loaded, long = (Host(make(n), flush=6) for n in (N, MORE, MORE))  # no result waits
    told(grown, 0, 4)
    loaded.load_state_dict(grown.state_dict())
    grown.grow(Discrete(MORE))
    told(long, 0, 4)
    for host in (grown, loaded, long):
        told(host, 4, 6)
    wanted = long.state_dict()
    if kind == "lp":  # of what it was never told, it has learnt that it is never solved
        wanted = {name: array for name, array in wanted.items() if not name.startswith("core.measured")}
    for host in (grown, loaded):
        found = host.state_dict()
        for name in wanted.keys() - {"checksums"}:
            if name.startswith("statistics"):  # they are added up in other portions
                np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12)
            elif name != "settings" or host is grown:
                np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
        np.testing.assert_array_equal(host.weights(), long.weights())
    assert (grown.draw(200) >= N).any() or grown.weights()[N:].sum() == 0


def test_names_must_be_those_of_before_and_all_records_go_on(tmp_path):
    names = ("corridor", "rooms", "maze")
    host = Host(TSCL(3), Discrete.of(names), log=tmp_path / "tasks.csv")
    told = dict(progress=[1, 0, 1], returns=[1.0, 2, 3], length=5)  # noqa: C408
    host.report([0, 1, 2], **told)
    state = host.state_dict()
    longer = Discrete.of((*names, "tower"))
    for space, message in (
        (Discrete.of(("rooms", "corridor", "maze", "tower")), "must begin with the 3 tasks that there are"),
        (Discrete.of(names[:2]), "has 2 tasks: it must have more than 3"),
        (Box((0.0,), (1.0,)), "has None tasks"),
    ):
        with pytest.raises(ValueError, match=message):
            host.grow(space)
    other = Host(TSCL(4), Discrete.of(("corridor", "rooms", "tower", "maze")))
    with pytest.raises(ValueError, match=r"saved with space\.tasks="):
        other.load_state_dict(state)
    again = Host(TSCL(4), longer)
    again.load_state_dict(state)
    host.grow(longer)
    host.report([3, 0], progress=0, returns=9, length=1)
    assert host.statistics.table()["attempts"].tolist() == [2, 1, 1, 1]
    assert again.statistics.table()["attempts"].tolist() == [1, 1, 1, 0]
    host.log.write()
    rows = [line.split(",") for line in (tmp_path / "tasks.csv").read_text().splitlines()[1:]]
    assert [row[3] for row in rows] == [*names, *names, "tower"]
    with pytest.raises(ValueError, match=r"saved with core\.n_tasks=4, and this Host has core\.n_tasks=3"):
        Host(TSCL(3), Discrete.of(names)).load_state_dict(again.state_dict())


def test_settings_of_each_task_must_be_given_anew():
    host = Host(Strata(SFL(4), ((0, 1), (2, 3))))
    host.evaluated([0.5, 0.4, 0.3, 0.2])
    with pytest.raises(ValueError, match=r"the strata have 4 tasks: there are 5; give the core for 5 tasks"):
        host.grow(Discrete(5))
    for wrong in (SFL(5), Strata(SFL(4), ((0, 1), (2, 3))), Strata(Uniform(5), ((0, 1), (2, 3, 4)))):
        with pytest.raises(ValueError, match="core is"):
            host.grow(Discrete(5), wrong)
    host.grow(Discrete(5), Strata(SFL(5), ((0, 1), (2, 3, 4))))
    assert host.weights()[0] > host.weights()[2] > host.weights()[1]
    product = Host(ProductCurriculum((Uniform(2), Uniform(2))), multi_discrete((2, 2)))
    with pytest.raises(ValueError, match=r"only lists \(Discrete\) can grow"):
        product.grow(multi_discrete((2, 3)))


@pytest.mark.parametrize(
    "core", [SFL(N), pytest.param(ListedPLR(N), marks=pytest.mark.deep), Constant(N, 2), BatchedUniform(N)], ids=str
)
def test_retired_tasks_are_not_drawn_and_the_others_as_often_in_proportion(core):
    host = Host(core, seed=1, draw_ahead=200, together=True)
    if episodes_needed(core):
        host.evaluated([0.5, 0.3, 0.2, 0.1, 0.4])
    before = host.weights()
    host.draw(3)
    host.retire([2])
    host.retire([0, 2])
    tasks = host.draw(2000)
    assert set(tasks) <= {1, 3, 4}
    left = np.where(np.isin(np.arange(N), [0, 2]), 0, before)
    if isinstance(core, Constant):  # the one task that there is is retired: the others are alike
        left[[1, 3, 4]] = 1
    np.testing.assert_allclose(host.weights(), left / left.sum(), rtol=1e-5)
    if not isinstance(core, ListedPLR):  # it also draws what it has not seen
        np.testing.assert_allclose(np.bincount(tasks, minlength=N) / 2000, left / left.sum(), atol=0.04)
    again = Host(core, seed=1, draw_ahead=200, together=True)
    again.load_state_dict(host.state_dict())
    np.testing.assert_array_equal(again.draw(50), host.draw(50))
    with pytest.raises(ValueError, match="all 5 tasks would be retired"):
        host.retire([1, 3, 4])
    host.draw(1)


@pytest.mark.deep
def test_the_first_stretch_is_random_and_the_curriculum_learns_from_it():
    core = RandomStart(ListedPLR(N), n_first=60)
    host, alone = Host(core, flush=2), Host(ListedPLR(N))
    tasks = host.draw(60)
    assert set(tasks) == set(range(N))
    np.testing.assert_allclose(host.weights(), [1 / N] * N if host.n_drawn < 60 else host.weights())
    for each in (host, alone):
        each.report_scores([3, 4], [1.0, 9.0])
    inner = jax.tree.leaves({k: v for k, v in host.state_dict().items() if "inner.scores" in k})
    np.testing.assert_array_equal(inner[0], [0, 0, 0, 1, 9])
    assert host.weights()[4] > 0.5  # the stretch is over
    half = Host(RandomStart(Constant(N, 1), n_first=40))
    assert [task == 1 for task in half.draw(80)[40:]] == [True] * 40
    assert np.allclose(Host(RandomStart(Constant(N, 1), n_first=40)).weights(), 1 / N)
    rates = Host(RandomStart(SFL(N), n_first=1))
    rates.draw(1)
    rates.evaluated([0.5, 0, 0, 0, 0])
    assert rates.weights()[0] == 1
    box = Box((0.0,), (1.0,))
    assert Host(RandomStart(UniformOver(box), 5, UniformOver(box)), box).draw(9).shape == (9, 1)
    with pytest.raises(ValueError, match="give start, such as UniformOver"):
        RandomStart(UniformOver(box), 5)
    with pytest.raises(ValueError, match="n_first is 0"):
        RandomStart(Uniform(N), 0)


def test_robust_plr_over_a_list_says_what_to_learn_from():
    host = Host(RobustPLR(N))
    assert host.trains(np.arange(N)).tolist() == [False] * N
    host.report_scores([1, 3], [0.5, 0.1])
    assert host.trains([[1, 0], [3, 3]]).tolist() == [[True, False], [True, True]]
    assert Host(ListedPLR(N)).trains([0]) is None
    first = Host(RandomStart(RobustPLR(N), 3))
    assert not first.trains([0])[0]


def test_robust_plr_stays_robust_inside_of_others():
    stages = Host(Sequential(4, [Stage(RobustPLR(2), (1, 3)), [0, 1, 2, 3]], ["episodes >= 3"]))
    assert stages.trains(np.arange(4)).tolist() == [True, False, True, False]  # the stage does not have 0 and 2
    stages.report_scores([3], [0.5])
    assert stages.trains(np.arange(4)).tolist() == [True, False, True, True]
    both = Host(ProductCurriculum((RobustPLR(2), Uniform(3))))
    both.report_scores([4], [0.5])  # the parts are 1 and 1
    assert both.trains(np.arange(6)).tolist() == [False] * 3 + [True] * 3
    long = Host(Sequential(2, [LongList(RobustPLR(2)), Uniform(2)], ["episodes >= 3"]))
    assert not long.trains([0, 1]).any()
    for core in (Sequential(2, [[0], [1]], ["steps > 5"]), RandomStart(ListedPLR(2), 3)):
        assert Host(core).trains([0]) is None
    with pytest.raises(ValueError, match=r"^cores is RobustPLR, UniformOver: beside a box, none may leave tasks out"):
        ProductCurriculum((RobustPLR(2), UniformOver(Box((0.0,), (1.0,)))))


def test_a_random_first_stretch_grows_with_its_list():
    host = Host(RandomStart(ListedPLR(N), n_first=400))
    state = host.state_dict()
    host.grow(Discrete(MORE))
    assert set(host.draw(200)) == set(range(MORE))
    longer = Host(RandomStart(ListedPLR(MORE), n_first=400))
    longer.load_state_dict(state)
    assert set(longer.draw(200)) == set(range(MORE))


def test_cores_that_cannot_grow_say_so():
    for core in (Sequential(4, [[0, 1], [2, 3]], ["steps>5"]), Masked(Uniform(4), (True, False, True, True))):
        host = Host(core)
        if isinstance(core, Masked):
            with pytest.raises(ValueError, match="allowed has 4 entries: it needs 5, one of them true; give the core"):
                host.grow(Discrete(5))
        else:
            host.grow(Discrete(5))
            assert host.space.n == 5

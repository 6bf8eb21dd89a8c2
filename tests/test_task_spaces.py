"""Task spaces: tasks to numbers and back, uniform draws, refusals."""

import functools

import jax
import numpy as np
import pytest

from minimax_lib.tasks.spaces import Box, Discrete, Product, Stratified, multi_discrete

LETTERS = Discrete.of(["a", ("b", 1), None])
LISTED = {
    "numbers": Discrete(5),
    "range": Discrete.of(range(7, 12)),
    "list": LETTERS,
    "strata": Stratified(((0, 3), (1,), (2, 4, 5))),
    "product": Product((LETTERS, Discrete(4)), ("letter", "number")),
    "axes": multi_discrete((2, 3, 2)),
}


@functools.partial(jax.jit, static_argnums=(0, 2))
def sample(space, key, n):
    return space.sample(key, n)


@pytest.mark.parametrize("name", LISTED)
def test_every_task_has_its_number(name):
    space = LISTED[name]
    tasks = [space.decode(i) for i in range(space.n)]
    assert [space.encode(task) for task in tasks] == list(range(space.n))
    assert len({space.name(i) for i in range(space.n)}) == space.n
    assert space.shape == ()
    for wrong in (-1, space.n, 0.5, [0]):
        with pytest.raises(ValueError, match=rf"it must be a whole number from 0 to {space.n - 1}"):
            space.decode(wrong)


@pytest.mark.parametrize("name", LISTED)
def test_draws_are_uniform(name):
    space = LISTED[name]
    drawn = np.bincount(sample(space, jax.random.key(0), 12_000), minlength=space.n) / 12_000
    wanted = np.full(space.n, 1 / space.n)
    if name == "strata":
        wanted = 1 / 3 / np.array([2, 1, 3, 2, 3, 3])
    assert np.abs(drawn - wanted).max() < 5 * 0.5 / np.sqrt(12_000)


def test_the_last_axis_of_a_product_runs_fastest():
    space = LISTED["product"]
    assert space.decode(5) == {"letter": ("b", 1), "number": 1}
    assert space.name(5) == "letter=('b', 1) number=1"
    assert space.encode({"number": 3, "letter": None}) == 11


def test_a_box_gives_its_points_back_to_the_bit():
    space = Box((-1.0, 0.1), (1.0, 0.3))
    points = np.asarray(sample(space, jax.random.key(0), 500))
    assert points.shape == (500, 2)
    assert (points >= np.float32([-1, 0.1])).all()
    assert (points <= np.float32([1, 0.3])).all()
    for point in points[:20]:
        np.testing.assert_array_equal(space.encode(space.decode(point)), point)
    np.testing.assert_array_equal(space.decode(space.low), np.float32(space.low))
    with pytest.raises(ValueError, match=r"it must be between"):
        space.decode([0.0, 0.31])


def test_a_product_with_a_box_has_tuples():
    space = Product((Discrete(2), Box((0.0,), (1.0,))), ("map", "speed"))
    assert space.n is None
    numbers, points = jax.device_get(sample(space, jax.random.key(0), 6))
    assert numbers.shape == (6,)
    assert points.shape == (6, 1)
    task = space.decode((1, points[0]))
    assert task["map"] == 1
    assert space.encode(task)[0] == 1
    assert space.name((1, np.float32([0.5]))) == "map=1 speed=(0.5)"
    with pytest.raises(ValueError, match=r"it must be a tuple of 2"):
        space.decode(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Discrete(0), r"the number of tasks is 0"),
        (lambda: Discrete(2**31), r"the number of tasks is 2147483648"),
        (lambda: Discrete.of(["a", "b", "a"]), r"the task 'a' is in the list twice"),
        (lambda: Discrete.of([{}]), r"the task {} cannot be hashed"),
        (lambda: Discrete.of([]), r"the number of tasks is 0"),
        (lambda: LETTERS.encode("c"), r"'c' is none of the 3 tasks"),
        (lambda: Discrete(3).encode(3), r"3 is not a task: tasks are the numbers 0 to 2"),
        (lambda: Discrete(3).encode(True), r"True is not a task"),
        (lambda: Stratified(((0, 1), (1, 2))), r"task 1 is in two strata"),
        (lambda: Stratified(((0,), (2,))), r"task 1 is missing"),
        (lambda: Stratified(((0,), ())), r"each must have a task"),
        (lambda: Box((0.0,), (0.0,)), r"each low must be below its high"),
        (lambda: Box((0.0,), (float("inf"),)), r"it must be a list of finite numbers"),
        (lambda: Product((Discrete(2),), ("a", "b")), r"each of the 1 spaces needs its own name"),
        (lambda: multi_discrete((2**16, 2**16)), r"the number of tasks is 4294967296"),
        (lambda: LISTED["product"].encode({"letter": "a"}), r"it must be a dict with letter, number"),
    ],
)
def test_what_is_no_space_or_no_task_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_spaces_are_hashable_and_equal_by_value():
    assert len({Discrete(3), Discrete(3), Box(0.0, 1.0), Box((0.0,), (1.0,))}) == 2

"""Checkpoints: the whole state comes back, donation cannot touch it, damage is noticed, interruption is harmless."""

import dataclasses
import functools
import shutil
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.sharding import NamedSharding, PartitionSpec

from minimax_lib.store import checkpoint
from minimax_lib.store.checkpoint import CheckpointError, Checkpoints, _explained, fingerprint, on_host, placed


@struct.dataclass
class State:
    clock: jax.Array
    seed: jax.Array
    weights: dict[str, jax.Array]
    filled: jax.Array
    half: jax.Array
    nothing: jax.Array
    unused: None = None


@functools.partial(jax.jit, static_argnums=0)
def make(n: int = 300) -> State:
    keys = jax.vmap(jax.random.key)(jnp.arange(2, dtype=jnp.int32))
    return State(
        clock=jnp.arange(2, dtype=jnp.int32),
        seed=keys,
        weights={"kernel": jax.random.normal(jax.random.key(1), (2, n)), "bias": jnp.full((2, 1), -jnp.inf)},
        filled=jnp.array([True, False]),
        half=jnp.arange(3, dtype=jnp.bfloat16),
        nothing=jnp.zeros((2, 0), jnp.uint8),
    )


@jax.jit
def stepped(state: State) -> State:
    return state.replace(clock=state.clock + 1, weights=jax.tree.map(lambda w: w + 1, state.weights))


def assert_same(a: State, b: State) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(on_host(x), on_host(y))


@pytest.fixture
def two(tmp_path):
    """A folder with checkpoints of update 1 and 2, and their states."""
    states = {1: make(), 2: stepped(make())}
    with Checkpoints(tmp_path / "checkpoints") as checkpoints:
        for update, state in states.items():
            checkpoints.save(update, state)
    return tmp_path / "checkpoints", states


def test_the_whole_state_comes_back_typed_keys_included(two):
    folder, states = two
    with Checkpoints(folder) as checkpoints:
        restored = checkpoints.restore(placed(jax.eval_shape(make)))
    assert restored.update == 2
    assert restored.damaged == {}
    assert_same(restored.state, states[2])
    np.testing.assert_array_equal(
        jax.vmap(jax.random.bits)(restored.state.seed), jax.vmap(jax.random.bits)(states[2].seed)
    )


@struct.dataclass
class LaterState(State):
    """The state of a later version, which has one more member."""

    later: Any = ()


def test_a_later_version_reads_what_an_earlier_one_saved_where_its_new_member_is_empty(two):
    folder, states = two
    members = {field.name: getattr(states[2], field.name) for field in dataclasses.fields(State)}
    with Checkpoints(folder, read_only=True) as checkpoints:
        found = checkpoints.restore(placed(jax.eval_shape(lambda: LaterState(**members))))
        assert found.update == 2
        assert_same(found.state, LaterState(**members))
        with pytest.raises(CheckpointError, match=r"that of update 2: .*later"):
            checkpoints.restore(placed(jax.eval_shape(lambda: LaterState(**members, later=jnp.zeros(3, jnp.float32)))))


@struct.dataclass
class Whole:
    """A state in which such a state is a part."""

    part: Any
    clock: jax.Array


def test_a_part_of_a_state_may_have_a_new_empty_member_too(tmp_path):
    clock, saved = jnp.zeros((), jnp.int32), make(4)
    members = {field.name: getattr(saved, field.name) for field in dataclasses.fields(State)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, Whole(part=saved, clock=clock))
        later = Whole(part=LaterState(**members), clock=clock)
        assert_same(checkpoints.restore(placed(jax.eval_shape(lambda: later))).state, later)
        fuller = later.replace(part=LaterState(**members, later=jnp.zeros(3, jnp.float32)))
        with pytest.raises(CheckpointError, match=r"that of update 1: .*later"):
            checkpoints.restore(placed(jax.eval_shape(lambda: fuller)))


def test_shards_come_back_where_they_were(tmp_path):
    mesh = jax.make_mesh((2,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("device"))
    place = jax.jit(lambda: {"x": jnp.arange(8.0)}, out_shardings=sharding)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, place())
        restored = checkpoints.restore(placed(jax.eval_shape(place)))
    assert restored.state["x"].sharding == sharding
    np.testing.assert_array_equal(restored.state["x"], np.arange(8.0))


def test_a_state_donated_right_after_save_is_saved_as_it_was(tmp_path):
    """32 MB, so that the write is still under way while the donated buffers are written over."""
    overwrite = jax.jit(lambda xs: [x * 2 - 1 for x in xs], donate_argnums=0)
    start = lambda: [jnp.full(1 << 20, float(i)) for i in range(8)]  # noqa: E731
    jax.block_until_ready(overwrite(start()))
    with Checkpoints(tmp_path) as checkpoints:
        for update in range(3):
            state = start()
            checkpoints.save(update, state)
            for _ in range(4):
                state = overwrite(state)
            jax.block_until_ready(state)
            restored = checkpoints.restore(placed(jax.eval_shape(start)))
            assert restored.update == update
            for i, x in enumerate(restored.state):
                np.testing.assert_array_equal(x, np.full(1 << 20, float(i)))


def test_only_the_newest_are_kept_and_one_update_is_saved_once(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for update in (1, 5, 9, 9):
            checkpoints.save(update, make())
        checkpoints.wait()
        assert checkpoints.updates() == [5, 9]


def test_nothing_saved_is_not_an_error(tmp_path):
    with Checkpoints(tmp_path / "new") as checkpoints:
        assert checkpoints.restore(placed(jax.eval_shape(make))) is None


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scramble(path: Path) -> None:
    path.write_bytes(bytes(np.random.default_rng(0).integers(0, 256, path.stat().st_size, np.uint8)))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "every"),
    [
        (flip_a_bit, 4),
        *(pytest.param(f, 1, marks=pytest.mark.deep) for f in (flip_a_bit, truncate, scramble, Path.unlink)),
    ],
)
def test_a_damaged_newest_checkpoint_is_noticed_whichever_file_it_is(two, tmp_path, damage, every):
    """One file at a time: the run comes back as saved, from it or from the one before; never otherwise."""
    folder, states = two
    fell_back = 0
    files = sorted(path for path in (folder / "2").rglob("*") if path.is_file())
    for i, file in enumerate(files[::every]):
        copy = tmp_path / str(i)
        shutil.copytree(folder, copy)
        damage(copy / file.relative_to(folder))
        with Checkpoints(copy) as checkpoints:
            restored = checkpoints.restore(placed(jax.eval_shape(make)))
            assert_same(restored.state, states[restored.update])
            if restored.update == 1:
                fell_back += 1
                assert list(restored.damaged) == [2]
                assert "\n" not in restored.damaged[2]
            assert checkpoints.updates() == [1, 2]  # nothing is moved or deleted yet
    assert fell_back >= (3 if every == 1 else 1)


def test_a_damaged_checkpoint_is_kept_aside_and_its_place_is_free(two):
    folder, states = two
    for _ in range(2):
        shutil.rmtree(folder / "2" / "state" / "d")
        with Checkpoints(folder) as checkpoints:
            restored = checkpoints.restore(placed(jax.eval_shape(make)))
            aside = checkpoints.set_aside(restored.damaged)
            assert checkpoints.updates() == [1]
            checkpoints.save(2, states[2])
    assert sorted(path.name for path in aside.iterdir()) == ["2", "2-1"]
    with Checkpoints(folder) as checkpoints:
        assert checkpoints.restore(placed(jax.eval_shape(make))).update == 2


def test_all_damaged_is_refused_in_one_line_and_nothing_is_touched(two):
    folder, _ = two
    for update in "12":
        shutil.rmtree(folder / update / "state")
    with Checkpoints(folder) as checkpoints, pytest.raises(CheckpointError, match="that of update 2") as error:
        checkpoints.restore(placed(jax.eval_shape(make)))
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "going"])
def test_a_checkpoint_that_goes_while_it_is_read_is_no_damage(two, gone, monkeypatch):
    """As in a run under way that keeps one: it has saved a newer one, and deletes the one that a reader has found."""
    folder, _ = two
    shutil.move(folder / "2", folder.parent / "newer")
    read = Checkpoints._read

    def overtaken(self, update, shape):
        if update == 1:
            shutil.move(folder.parent / "newer", folder / "2")
            shutil.rmtree(folder / "1" if gone else folder / "1" / "state")
        return read(self, update, shape)

    monkeypatch.setattr(Checkpoints, "_read", overtaken)
    with Checkpoints(folder, read_only=True) as reader:
        restored = reader.restore(placed(jax.eval_shape(make)))
    assert (restored.update, restored.damaged) == (2, {})
    monkeypatch.undo()
    with Checkpoints(folder, read_only=True) as reader, monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_read", lambda self, update, shape: shutil.rmtree(folder / str(update)))
        assert reader.restore(placed(jax.eval_shape(make))) is None


def test_a_reader_makes_no_manager_which_would_look_at_folders_that_go(two, monkeypatch):
    folder, _ = two
    monkeypatch.setattr(checkpoint.ocp, "CheckpointManager", None)
    with Checkpoints(folder, read_only=True) as reader:
        assert reader.restore(placed(jax.eval_shape(make))).update == 2


def test_a_write_that_a_kill_interrupted_is_cleaned_up_but_not_by_a_reader(two):
    folder, _ = two
    partial = folder / "3.orbax-checkpoint-tmp"
    shutil.copytree(folder / "2", partial)
    with Checkpoints(folder, read_only=True) as reader:
        assert reader.restore(placed(jax.eval_shape(make))).update == 2
    assert partial.exists()
    with Checkpoints(folder) as owner:
        owner.save(3, make())
    assert not partial.exists()


def test_a_write_that_fails_is_reported_and_the_one_before_stays(two, monkeypatch):
    folder, _ = two

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left on device") as error, Checkpoints(folder) as checkpoints:  # noqa: PT012
        monkeypatch.setattr("orbax.checkpoint._src.path.async_path.rename", full)
        checkpoints.save(3, make())
        checkpoints.wait()
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    with Checkpoints(folder) as checkpoints:
        assert checkpoints.restore(placed(jax.eval_shape(make))).update == 2


def test_the_fingerprint_sees_values_names_shapes_and_types():
    state = {"a": jnp.arange(4.0)}
    assert fingerprint(state) == fingerprint({"a": jnp.arange(4.0)})
    others = [
        {"b": jnp.arange(4.0)},
        {"a": jnp.arange(4.0).reshape(2, 2)},
        {"a": jnp.arange(4)},
        {"a": -jnp.arange(4.0)},
    ]
    assert len({fingerprint(x) for x in [state, *others]}) == 5
    named = zlib.crc32(b"['a'] (4,) float32")
    assert fingerprint(state) == zlib.crc32(np.arange(4, dtype=np.float32).tobytes(), named)


def test_a_long_description_of_an_array_does_not_hide_why_it_was_not_written():
    described = '[tensorstore_spec=\'{\\"driver\\":\\"' + 900 * "z" + "\\\"}']"
    why = r"^not written: OUT_OF_RANGE: File too large \[os_error_code='27'\]$"
    with pytest.raises(CheckpointError, match=why), _explained("not written"):
        raise ValueError(f"OUT_OF_RANGE: File too large {described} [os_error_code='27']")


def test_a_long_description_of_an_array_does_not_hide_why_it_was_not_read(two, monkeypatch):
    def fails(*_):
        raise ValueError("read failed. See full TensorStore details: TensorStore({\n'base': 1})>.")

    monkeypatch.setattr(Checkpoints, "_read", fails)
    with Checkpoints(two[0]) as checkpoints, pytest.raises(CheckpointError, match=r"that of update 2: read failed$"):
        checkpoints.restore(placed(jax.eval_shape(make)))


def test_a_checkpoint_of_another_version_of_a_model_is_named_as_such(two):
    """A layer that has come since has no saved numbers."""
    shape = jax.eval_shape(make)
    shape = shape.replace(weights=shape.weights | {"table": jax.ShapeDtypeStruct((2, 3), jnp.float32)})
    with Checkpoints(two[0]) as checkpoints, pytest.raises(CheckpointError, match=r"different: weights\.table$"):
        checkpoints.restore(placed(shape))

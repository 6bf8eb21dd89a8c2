"""Training on many devices.

The seeds are divided among groups of devices, and the rows of a batch among the devices of a group.

Each device runs the step that a single device would run, on its share of the rows. Gradients are averaged, so all
devices of a group learn the same parameters, of students and of a teacher. Everything else that a curriculum remembers,
such as a level buffer, belongs to one device and never leaves it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from minimax_lib import axes
from minimax_lib.runners import hosts
from minimax_lib.runners.seeds import MAX_STEPS, Report, SeedRunner, counted_env_steps, is_learner, seed_keys
from minimax_lib.runners.training import Runner, RunnerState
from minimax_lib.trees import mapped


@dataclasses.dataclass(frozen=True)
class DeviceMesh:
    """`n_groups` groups of `n_rows` devices. Each group has its own seeds; its devices divide the rows of a batch."""

    n_groups: int = 1
    n_rows: int = 1

    def __post_init__(self) -> None:
        for name in ("n_groups", "n_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")

    @property
    def n_devices(self) -> int:
        return self.n_groups * self.n_rows

    def check_devices(self) -> None:
        """ValueError if there are fewer devices, or if several processes would not use all of theirs."""
        n = jax.device_count()
        if self.n_devices > n:
            raise ValueError(f"n_devices is {self.n_devices}: there are {n} ({jax.devices()[0].device_kind})")
        # The devices that are left out may be all that a process has. It would then have no part in the run.
        if jax.process_count() > 1 and self.n_devices < n:
            raise ValueError(
                f"n_devices is {self.n_devices}: it must be {n}, all devices of the {jax.process_count()} processes"
            )

    @functools.cached_property
    def jax_mesh(self) -> Mesh:
        """JAX's mesh, with the axis `SEED_GROUP` and, if several devices divide a batch, the axis `DEVICE`."""
        # Made only on demand: `whole_state` may describe a run of more devices than this machine has.
        # A group of one device has no axis `DEVICE`. Its index would be folded into the keys (`axes.device_key`), and a
        # seed with its own device would differ from the same seed alone.
        shape = {axes.SEED_GROUP: self.n_groups} | ({axes.DEVICE: self.n_rows} if self.n_rows > 1 else {})
        # With JAX's default, Explicit, the sharding would be a part of every array's type.
        auto = (AxisType.Auto,) * len(shape)
        devices = jax.devices()[: self.n_devices]
        return jax.make_mesh(tuple(shape.values()), tuple(shape), axis_types=auto, devices=devices)

    @property
    def everywhere(self) -> NamedSharding:
        """The sharding of an array of which every device has a full copy."""
        return NamedSharding(self.jax_mesh, P())

    def per_seed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` of trees that lead with S, where each group computes its own seeds.

        Rows are not divided here: all devices of a group compute the same.
        """
        if self.n_devices == 1:
            return function
        seeds = P(axes.SEED_GROUP)
        return jax.shard_map(function, mesh=self.jax_mesh, in_specs=seeds, out_specs=seeds, check_vma=False)

    def compiled(self, function: Callable[..., Any]) -> jax.stages.Wrapped:
        """`function`, compiled. Every device has a full copy of the results."""
        # So every process can read them without an exchange with the others.
        return jax.jit(function) if self.n_devices == 1 else jax.jit(function, out_shardings=self.everywhere)

    def on_one_device(self, tree: Any) -> Any:
        """`tree`, with its numbers on the host if there are several devices. All processes must call this."""
        return tree if self.n_devices == 1 else jax.device_get(hosts.readable(tree))

    # ------------------------------------------------------------------------------------------ layout of the state

    def own(self, state: RunnerState) -> RunnerState:
        """For every leaf, whether each device has its own. Such a leaf has an axis of the group's devices after S."""
        return state.replace(
            clock=False,
            # The seed is common: each device folds its index into the key of every step (`axes.device_key`).
            seed=False,
            students=jax.tree.map(lambda _: False, state.students),
            # A teacher's state is common, since its gradients are averaged too. `is_leaf` keeps it in one piece.
            curriculum=jax.tree.map(self._own_part, state.curriculum, is_leaf=is_learner),
            start=jax.tree.map(self._own_part, state.start),
            rewards=self._own_rewards(state.rewards),
            idle=jax.tree.map(lambda _: False, state.idle),  # a sum over all devices
        )

    def _own_rewards(self, rewards: Any) -> Any:
        if not jax.tree.leaves(rewards):
            return rewards
        # The moments are sums over all devices. The episodes under way belong to one device.
        moments = jax.tree.map(lambda _: False, rewards.moments)
        return rewards.replace(moments=moments, returns=jax.tree.map(self._own_part, rewards.returns))

    def _own_part(self, part: Any) -> Any:
        # If devices do not divide the rows, a state has the same layout as on one device.
        return jax.tree.map(lambda _: self.n_rows > 1 and not is_learner(part), part)

    def specs(self, state: RunnerState) -> RunnerState:
        """How each leaf of a state is spread over the axes of the mesh."""
        mine, common = P(axes.SEED_GROUP, axes.DEVICE), P(axes.SEED_GROUP)
        return jax.tree.map(lambda own: mine if own else common, self.own(state))

    def shardings(self, state: RunnerState) -> RunnerState:
        return jax.tree.map(lambda spec: NamedSharding(self.jax_mesh, spec), self.specs(state))

    def laid_out(self, shape: RunnerState) -> RunnerState:
        """`shape`, the shapes and types of a whole state, with the sharding of each leaf; unchanged for one device."""
        if self.n_devices == 1:
            return shape
        return jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), shape, self.shardings(shape)
        )

    def of_device(self, state: RunnerState) -> RunnerState:
        """The part of one device, in the form of a state on a single device. For use inside `shard_map`."""
        # Inside `shard_map` a device sees only its own part, so the axis of devices has length one.
        return jax.tree.map(lambda own, x: x[:, 0] if own else x, self.own(state), state)

    def of_mesh(self, state: RunnerState, n_rows: int = 1) -> RunnerState:
        """The reverse of `of_device`, for `n_rows` devices that all have the numbers of `state`.

        Inside `shard_map`, `n_rows` is one: `shard_map` itself joins the parts of the devices.
        """

        def repeated(x: jax.Array) -> jax.Array:
            return jnp.broadcast_to(x[:, None], (x.shape[0], n_rows, *x.shape[1:]))

        return jax.tree.map(lambda own, x: repeated(x) if own else x, self.own(state), state)


class DeviceRunner:
    """A `Program` on the devices of a mesh. `runner` is the runner of one device.

    Leaves of which each device has its own are [S, n_rows, ...]. The others are [S, ...].
    """

    def __init__(self, runner: Runner, n_seeds: int, mesh: DeviceMesh):
        if n_seeds % mesh.n_groups:
            raise ValueError(f"n_seeds is {n_seeds}: {mesh.n_groups} groups of devices cannot divide them equally")
        self.runner = runner
        self.n_seeds = n_seeds
        self.mesh = mesh
        # Only its pure `run_until` is used. The step knows other devices only by the names of axes.
        self._local = SeedRunner(runner, n_seeds // mesh.n_groups)
        state = whole_state(runner, n_seeds, mesh)
        self.shape = mesh.laid_out(state)
        specs, shardings = mesh.specs(state), mesh.shardings(state)
        seeds: Any = P(axes.SEED_GROUP)
        common: Any = P()
        starting = self._on_mesh(self._start, in_specs=seeds, out_specs=specs)
        # Keys are made inside the program. Outside it, a process could not place them on the devices of another.
        self._init = jax.jit(lambda seed: starting(seed_keys(seed, n_seeds)), out_shardings=shardings)
        # Reports have no axis of devices. The step has averaged over the devices of a group, so any copy is right.
        report = Report(seeds, seeds, n_steps=common, nonfinite=seeds, broken_curriculum=seeds)
        running = self._on_mesh(self._run_until, in_specs=(specs, common, common), out_specs=(specs, report))
        self._run = jax.jit(running, donate_argnums=0, out_shardings=(shardings, mesh.everywhere))

    def init(self, seed: int) -> RunnerState:
        """Seed i of the batch is `jax.random.key(seed + i)`."""
        return self._init(np.int32(seed))

    def lower(self, state: RunnerState) -> jax.stages.Lowered:
        # The same types of numbers as in `run`. Other types would be another program, to be compiled again.
        return self._run.lower(state, np.int32(0), np.int32(0))

    def run(self, state: RunnerState, target_updates: int, max_steps: int = MAX_STEPS) -> tuple[RunnerState, Report]:
        return self._run(state, np.int32(target_updates), np.int32(max_steps))

    def env_steps(self, state: RunnerState) -> np.ndarray:
        return counted_env_steps(self.runner, state, self.mesh.n_rows)

    def _on_mesh(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        # With `check_vma`, JAX itself adds up the gradients of replicated parameters, and the mean that the step takes
        # would be n times too large. Without it, JAX does not check that replicas agree: `tests/test_devices.py` does.
        return jax.shard_map(function, mesh=self.mesh.jax_mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def _start(self, keys: jax.Array) -> RunnerState:
        # All devices of a group start from the same key, so their parameters are equal from the start. A curriculum
        # that divides something among devices uses `axes.device_index`.
        return self.mesh.of_mesh(mapped(self.runner.init)(keys))

    def _run_until(
        self, state: RunnerState, target_updates: jax.Array, max_steps: jax.Array
    ) -> tuple[RunnerState, Report]:
        state, report = self._local.run_until(self.mesh.of_device(state), target_updates, max_steps)
        return self.mesh.of_mesh(state), report


def keeps_own(runner: Runner) -> bool:
    """Whether a device remembers anything that the others do not."""
    # Any mesh that divides rows gives the answer. Two devices need not exist, since the mesh is only described.
    state = jax.eval_shape(runner.init, jax.random.key(0))
    return any(jax.tree.leaves(DeviceMesh(n_rows=2).own(state)))


def whole_state(runner: Runner, n_seeds: int, mesh: DeviceMesh) -> RunnerState:
    """Shapes and types of the whole state on a mesh. The devices need not exist."""

    def start() -> RunnerState:
        return mesh.of_mesh(mapped(runner.init)(seed_keys(0, n_seeds)), mesh.n_rows)

    return jax.eval_shape(start)

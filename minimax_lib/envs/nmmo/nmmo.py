"""`NMMO`: many agents who live, harvest and fight in a procedural world."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.multi_agent import AgentTimeStep, MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.nmmo import observation
from minimax_lib.envs.nmmo.bot import forager_moves, with_nothing_else
from minimax_lib.envs.nmmo.checks import check_settings
from minimax_lib.envs.nmmo.facts import facts_of, map_facts
from minimax_lib.envs.nmmo.fog import Fog
from minimax_lib.envs.nmmo.goods import N_SLOTS, empty_packs
from minimax_lib.envs.nmmo.ground import passable_windows
from minimax_lib.envs.nmmo.heads import heads_of, mask_spaces, masks_of, orders_of
from minimax_lib.envs.nmmo.log import COLUMNS, log_of, n_rows
from minimax_lib.envs.nmmo.looking import remembered, view_of
from minimax_lib.envs.nmmo.market import shelf
from minimax_lib.envs.nmmo.masks import target_mask
from minimax_lib.envs.nmmo.moment import Moment, as_moment, moment_of
from minimax_lib.envs.nmmo.neighbours import neighbours
from minimax_lib.envs.nmmo.presets import AS_TESTED, PRESETS, Preset
from minimax_lib.envs.nmmo.resources import Resources, placed, with_patches
from minimax_lib.envs.nmmo.shaping import no_moves, shaped
from minimax_lib.envs.nmmo.spawning import CANDIDATES, N_BITS
from minimax_lib.envs.nmmo.square import Square, spawn_places
from minimax_lib.envs.nmmo.state import (
    NOBODY,
    EnvState,
    Ground,
    Level,
    empty_queue,
    newborn,
    no_npcs,
    unscored,
)
from minimax_lib.envs.nmmo.survival import Survival
from minimax_lib.envs.nmmo.tables import FULL
from minimax_lib.envs.nmmo.tally import empty_tally
from minimax_lib.envs.nmmo.task_places import check_tasks, places_of
from minimax_lib.envs.nmmo.tasks import TaskList, members_of, scored, task_list, values
from minimax_lib.envs.nmmo.teams import Teams
from minimax_lib.envs.nmmo.terrain import sample_terrain
from minimax_lib.envs.nmmo.things import N_THINGS
from minimax_lib.envs.nmmo.tick import Rules, advance, with_npcs
from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Space
from minimax_lib.envs.terminal import Scene
from minimax_lib.registry import unknown_name

# A setting that nobody has set: `__post_init__` puts in what the preset says. So its type is that of the setting.
BY_PRESET: Any = None


@dataclasses.dataclass(frozen=True)
class NMMO(MultiAgentEnvironment):
    """Neural MMO 2 (Suarez et al. 2023): survival, harvest, NPCs, combat, levels, goods, a market and tasks.

    Agents are hungry and thirsty. They eat foliage, drink beside water, learn eight skills by harvesting and fighting,
    carry, wear, give and trade things, and are paid for the progress of their own task. A life ends with death.
    """

    preset: Preset = "medium"
    """The world whose settings hold where none is given: medium, small (the reference's two), mini (no NPCs, no
    fights, no goods), mini_npc, or competition (that of NeurIPS 2023)."""
    n_players: int = BY_PRESET
    """P, the agents."""
    n_npcs: int = BY_PRESET
    """N, the most NPCs at a time. 0 switches them off."""
    centre: int = BY_PRESET
    """Side of the part of the map that can be walked, in tiles, a multiple of 16."""
    combat: bool = BY_PRESET
    """Whether there are attacks."""
    items: bool = BY_PRESET
    """Whether players carry things. Without them, a harvest gives experience alone."""
    market: bool = BY_PRESET
    """Whether players sell, buy, and give each other gold."""
    max_steps: int = BY_PRESET
    """The horizon: ticks after which a world ends."""
    n_neighbours: int = BY_PRESET
    """K, the entities that an agent is told of, itself included."""
    clusters: int = BY_PRESET
    """Clusters of ore, trees and crystals on a map, each."""
    single_resources: int = BY_PRESET
    """Herbs on a map, and as many fish."""
    npc_level_max: int = BY_PRESET
    """Level of the strongest NPCs plus 1, but at least 1."""
    sharpness_low: float = BY_PRESET
    """The least base-10 logarithm of a map's sharpness, which is random up to 0. Small values give clear borders."""
    n_teams: int = 0
    """Teams of equal size; 0: everybody is alone. Players of a team have adjacent numbers, begin on one tile, are drawn
    one task together, and are told who is a friend. They can hurt each other, as in the reference. A world ends when
    one team is left."""
    task_set: str = "survive"
    """The list of tasks: survive (until the horizon), stages (fifty, of Sullivan et al. 2025) or one of the five,
    stage_1 to stage_5, train (1,293), sample_eval (24) or competition (63, all of NeurIPS 2023), train_part and
    test_part (four fifths of train, and what they leave out), race_to_center, for teams team_battle or
    protect_the_king, one that you registered, or a YAML file."""
    death_reward: float = -1.0
    """Reward of the tick in which an agent dies, in place of its task's progress."""
    health_reward: float = 0.0
    """Added to the reward of a tick: so much times the change of health, as a share of full health. A help for
    training."""
    shaping: Literal["none", "starter_kit", "best_entry"] = "none"
    """Added to the reward of a tick: what the starter kit or the best entry of the NeurIPS 2023 competition paid
    beside the task (`minimax_lib.envs.nmmo.shaping`). A help for training."""
    spawn_immunity: int = 20
    """Age in ticks from which players can be attacked by players."""
    starvation: int = 10
    """Health lost in a tick without food."""
    dehydration: int = 10
    """Health lost in a tick without water."""
    fog_onset: int = 0
    """The tick from which a fog comes in from the edge; 0: there is none. In it, a tick takes 1 of the health for each
    tile that the fog has come further in."""
    fog_speed: float = 1.0
    """Tiles that the fog comes further in every tick."""
    fog_final: int = 8
    """Tiles from the middle at which the fog stops."""
    resilient: float = 0.0
    """Share of agents who lose half as much to hunger and thirst: a help for training."""
    may_hold_fire: bool = False
    """An agent with somebody in reach may leave off attacking. The reference forces the attack."""
    stop_below: int = 0
    """A world ends when at most so many agents live. Dead agents cost as much as living ones."""
    horizon_jitter: float = 0.0
    """A world's horizon is random: at least (1 - this) of `max_steps`. So worlds do not all have the same age."""
    keep_log: bool = False
    """The state keeps the events of the last tick, to look into a game (`minimax_lib.envs.nmmo.log`)."""

    resets_at_once = 1

    def __post_init__(self) -> None:
        if self.preset not in get_args(Preset):
            raise unknown_name("preset", self.preset, get_args(Preset))
        for name, value in PRESETS[self.preset].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        check_settings(self)
        check_tasks(self.tasks, self)

    @property
    def n_agents(self) -> int:
        return self.n_players

    @property
    def square(self) -> Square:
        """The sizes of a map."""
        return Square(self.centre)

    @property
    def rules(self) -> Rules:
        """What the systems need to know."""
        return Rules(
            square=self.square,
            survival=Survival(self.starvation, self.dehydration),
            combat=self.combat,
            items=self.items,
            market=self.market,
            spawn_immunity=self.spawn_immunity,
            npc_level_max=self.npc_level_max,
            fog=Fog(self.fog_onset, self.fog_speed, self.fog_final) if self.fog_onset else None,
        )

    @property
    def teams(self) -> Teams | None:
        """Who is in which team; None where everybody is alone."""
        return Teams(self.n_teams, self.n_players) if self.n_teams else None

    @property
    def team_size(self) -> int:  # type: ignore[override]
        return self.n_players // self.n_teams if self.n_teams else 1

    @property
    def tasks(self) -> TaskList:
        """The tasks by number."""
        return task_list(self.task_set, self.max_steps, self.square.middle)

    @property
    def n_tasks(self) -> int:
        return len(self.tasks)

    @property
    def action_space(self) -> Dict:
        """A step; with combat also a neighbour to attack and the style; with items and a market what to do with them.

        See `heads.heads_of`. The last value of most choices is "none".
        """
        return Dict(heads_of(self.rules, self.n_neighbours))

    @property
    def observation_space(self) -> Dict:
        """See `observation`. A dead agent sees zeros."""
        parts: tuple[tuple[str, Space], ...] = (
            ("tiles", Box(0, 15, (observation.VIEW, observation.VIEW, 1), "uint8")),
            ("entities", Box(0, 255, (self.n_neighbours, observation.N_COLUMNS), "uint8")),
            ("self", Box(-1.0, 1.0, (observation.N_SELF,))),
        )
        if self.items:
            parts += (("pack", Box(0, 255, (N_SLOTS, observation.N_PACK), "uint8")),)
        if self.market:
            parts += (("market", Box(0, 255, (N_THINGS, observation.N_MARKET), "uint8")),)
        parts += (("task", Box(0.0, 1.0, (observation.N_TASK,))),)
        return Dict((*parts, (ACTION_MASK, Dict(mask_spaces(self.action_space.items)))))

    def sample_level(self, key: jax.Array) -> Level:
        """A random map with random places to spawn and a random task for each agent. Slow: some 10^7 operations."""
        if not self.level_box:
            return self.level_at(key, jnp.zeros(0, jnp.float32))
        k_sharp, *_ = jax.random.split(key, 5)
        return self.level_at(key, jax.random.uniform(k_sharp, (1,), jnp.float32, self.sharpness_low, 0.0))

    @property
    def level_box(self) -> dict[str, tuple[float, float]]:
        """The base-10 logarithm of the sharpness, where it differs from map to map."""
        return {"log_sharpness": (self.sharpness_low, 0.0)} if self.sharpness_low else {}

    def level_at(self, key: jax.Array, point: jax.Array) -> Level:
        """A random level of this sharpness; see `Environment.level_at`."""
        _, k_terrain, k_place, k_spawn, k_tasks = jax.random.split(key, 5)
        sharpness = 10.0 ** point[0] if self.level_box else jnp.float32(1)
        counts = Resources(self.clusters, self.single_resources, (self.centre // 6) ** 2)
        terrain = sample_terrain(k_terrain, self.square, sharpness)
        return Level(
            terrain=with_patches(placed(k_place, self.square, terrain, counts), places_of(self.tasks.patches)),
            spawn=self.spawned(k_spawn),
            tasks=self._drawn(k_tasks),
            sharpness=sharpness,
        )

    def spawned(self, key: jax.Array) -> jax.Array:
        """i16[P, 2], where players begin: on the edge, each team on one tile."""
        if self.teams is None:
            return spawn_places(key, self.square, self.n_players)
        return self.teams.spawn_places(key, self.square)

    def _drawn(self, key: jax.Array) -> jax.Array:
        """i32[P], a random task for each agent, or each team, by the weights of the list."""
        weights, n = self.tasks.weights, self.n_teams or self.n_players
        if (weights == weights[0]).all():
            tasks = jax.random.randint(key, (n,), 0, self.n_tasks, jnp.int32)
        else:
            uniform = jax.random.uniform(key, (n,))
            place = jnp.searchsorted(jnp.asarray(np.cumsum(weights), jnp.float32), uniform, side="right")
            tasks = jnp.minimum(place, self.n_tasks - 1).astype(jnp.int32)
        return tasks if self.teams is None else tasks[self.teams.of]

    def with_tasks(self, level: Level, tasks: jax.Array) -> Level:
        """See `Environment.with_tasks`."""
        return level.replace(tasks=tasks)

    def tasks_of(self, level: Level) -> jax.Array:
        """See `Environment.tasks_of`."""
        return level.tasks

    def task_name(self, number: int) -> str:
        """What a task is called in files."""
        return self.tasks.name(number)

    def task_kind(self, number: int) -> str:
        """See `Environment.task_kind`."""
        return self.tasks.specs[number].sort

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, AgentTimeStep]:
        """The start of a world on `level`: everybody on the edge, and the first NPCs."""
        k_resilient, k_horizon, k_npcs = jax.random.split(key, 3)
        n, shape = self.n_players, level.terrain.shape
        resilient = jax.random.uniform(k_resilient, (n,)) < self.resilient
        cut = jnp.floor(self.max_steps * self.horizon_jitter * jax.random.uniform(k_horizon)).astype(jnp.int32)
        windows = passable_windows(level.terrain) if self.n_npcs else jnp.zeros((0, 0), jnp.uint16)
        state = EnvState(
            level=level,
            tick=jnp.zeros((), jnp.int32),
            horizon=jnp.maximum(self.max_steps - cut, 1),
            players=newborn(level.spawn, resilient),
            npcs=no_npcs(self.n_npcs),
            queue=empty_queue(self.n_npcs),
            ground=Ground(ready_at=jnp.zeros(shape, jnp.int16), windows=windows),
            score=unscored(n, self.tasks.pay is not None),
            near=jnp.full((n, self.n_neighbours), NOBODY, jnp.int16),
            goods=empty_packs(n) if self.items else None,
            tally=empty_tally(self.tasks.predicates, self.tasks.has_own, n, self.tasks.n_leaves),
            seized=jnp.full((len(self.tasks.seizes), 2), NOBODY, jnp.int32) if len(self.tasks.seizes) else None,
            moves=no_moves(self.shaping, n),
            log=jnp.zeros((n_rows(self.rules, n), len(COLUMNS)), jnp.int32) if self.keep_log else None,
        )
        if self.n_npcs:
            state = with_npcs(jax.random.bits(k_npcs, (CANDIDATES, N_BITS), jnp.uint32), state, self.rules)
        state = self._looked_round(state)
        facts = facts_of(state.players, self.rules, self.n_teams > 0)
        return state, agents_opening(self.observe(state), progress=state.score.best, facts=facts)

    def step(self, key: jax.Array, state: EnvState, action: Mapping[str, jax.Array]) -> tuple[EnvState, AgentTimeStep]:
        """The world after a tick in which every agent does its `action` (i32[P] each)."""
        playing, before = state.players.alive, state.players
        state, happened = advance(key, state, orders_of(state, action, self.rules), self.rules)
        state = remembered(state, self.tasks, happened, self.teams)
        if self.keep_log:
            state = state.replace(log=log_of(before, state.players, happened))
        numbers = state.level.tasks
        pay = {name: jnp.asarray(x)[numbers] for name, x in self.tasks.pay.items()} if self.tasks.pay else None
        score, reward = scored(state.score, self.task_values(state), playing, pay)
        # The fields of dead players do not change.
        if self.health_reward:
            reward += self.health_reward / FULL * (state.players.health - before.health)
        if self.shaping != "none":
            state, more = shaped(self.shaping, before, state, action["move"], playing)
            reward += more
        state = self._looked_round(state.replace(score=score))
        alive = state.players.alive
        died = playing & ~alive
        over = (state.tick >= state.horizon) | (alive.sum() <= self.stop_below)
        if self.teams is not None:
            over |= self.teams.n_left(alive) <= 1
        return state, agents_transition(
            self.observe(state),
            jnp.where(died, self.death_reward, reward),
            playing=playing,
            terminated=died,
            truncated=alive & over,
            over=over,
            progress=jnp.where(score.completed, 1.0, score.best),
            facts=facts_of(state.players, self.rules, self.n_teams > 0),
        )

    def task_values(self, state: EnvState) -> jax.Array:
        """f32[P], how far the goal of each agent's task is reached in `state`."""
        tasks, numbers, view = self.tasks, state.level.tasks, view_of(state, self.square, self.tasks.seizes)
        parts = None if state.tally is None else state.tally.parts
        return values(tasks, numbers, view, members_of(tasks, numbers, self.teams), parts, self.teams)

    def _looked_round(self, state: EnvState) -> EnvState:
        """The state with what everybody is told of now."""
        position = jnp.concatenate([state.players.position, state.npcs.position])
        alive = jnp.concatenate([state.players.alive, state.npcs.alive])
        near = neighbours(position, alive, self.n_players, self.n_neighbours)
        return state.replace(near=near, shelf=shelf(state.goods) if self.market else None)

    def observe(self, state: EnvState) -> dict[str, Any]:
        """What all agents see in `state`."""
        entities = observation.entities(state, self.teams)
        masks = masks_of(state, entities, self.rules, self.may_hold_fire)
        seen = {
            "tiles": observation.tiles(state),
            "entities": entities,
            "self": observation.itself(state, self.square, self.spawn_immunity),
            "task": observation.task_row(state, self.tasks),
            ACTION_MASK: masks,
        }
        if self.items:
            seen["pack"] = observation.pack(state, masks["use"][:, :N_SLOTS])
        if self.market:
            seen["market"] = observation.market(state)
        return jax.tree.map(functools.partial(observation.of_living, state.players.alive), seen)

    def bot(self, key: jax.Array, state: EnvState, seat: jax.Array) -> dict[str, jax.Array]:
        """The action of the forager (`bot.forager_moves`) for one agent. It attacks only where that is forced."""
        tiles = observation.tiles(state)[..., 0]
        move = forager_moves(tiles, state.players, self.square)
        masks = {}
        if self.combat:
            entities = observation.entities(state)
            masks["target"] = target_mask(entities, state.near, self.spawn_immunity, self.may_hold_fire)
        action = with_nothing_else(move, self.action_space.items, masks)
        return jax.tree.map(lambda x: x[seat], action)

    def single(self) -> "NMMO":
        """See `Environment.single`."""
        return dataclasses.replace(self, **AS_TESTED)

    def slim(self, state: EnvState) -> Moment:
        """See `Environment.slim`."""
        return moment_of(state)

    def draw_episodes(self, states: Any, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        """See `Environment.draw_episodes`."""
        from minimax_lib.envs.nmmo.render import draw_episodes  # needs pillow, which only pictures use

        return draw_episodes(states, running, captions, columns)

    def draw_state(self, state: EnvState | Moment) -> np.ndarray:
        """See `Environment.draw_state`."""
        from minimax_lib.envs.nmmo.render import draw_state

        return draw_state(as_moment(state), self.task_name)

    def scene(self, state: EnvState | Moment) -> Scene:
        """See `Environment.scene`."""
        from minimax_lib.envs.nmmo.text import scene

        return scene(as_moment(state), self.task_name)

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """See `facts.map_facts`."""
        return map_facts(level, self.square)

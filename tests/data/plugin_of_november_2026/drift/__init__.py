"""A boat in a current: a plugin with all its parts. Importing it registers them."""

import minimax_lib
from drift.curriculum import WarmupSettings
from drift.model import Fading
from drift.mutation import editing
from drift.score import spread, squared_td_error
from drift.tasks import DriftTasks
from drift.teacher import DriftDesign
from drift.world import Drift

minimax_lib.register_env(
    "Drift",
    Drift,
    held_out=DriftTasks,
    groups={"validation": ("Calm", "Against"), "benchmark": DriftTasks.known},
    teacher=DriftDesign,
    editing=editing,
)
minimax_lib.register_model("fading", Fading)
minimax_lib.register_score("squared_td_error", squared_td_error)
minimax_lib.register_score("spread", spread)
minimax_lib.register_curriculum("warmup", WarmupSettings)

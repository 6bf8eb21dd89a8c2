"""Names of settings in other libraries (minimax, JaxUED, dcd, Stable-Baselines3): users may type them from habit."""

from collections.abc import Mapping
from typing import Any

NAMES_ELSEWHERE = {
    "env": ("env_name", "env_id"),
    "runner": ("method", "train_runner", "ued_algo", "algo", "curriculum"),
    "model": ("architecture", "student_model_name", "recurrent_arch"),
    "name": ("xpid", "run_name", "exp_name"),
    "n_updates": ("n_total_updates", "num_updates", "num_env_steps", "total_timesteps"),
    "log_every": ("log_interval",),
    "checkpoint_every": ("checkpoint_interval", "save_interval", "checkpoint_save_interval"),
    "runner.n_parallel": ("n_envs", "num_envs", "num_train_envs", "num_processes"),
    "runner.n_steps": ("num_steps", "rollout_length", "n_rollout_steps"),
    "runner.capacity": ("buffer_size", "plr_buffer_size", "level_buffer_capacity", "level_replay_seed_buffer_size"),
    "runner.replay_prob": ("plr_replay_prob", "level_replay_prob"),
    "runner.staleness": ("staleness_coef", "staleness_coeff", "plr_staleness_coef"),
    "runner.temperature": ("plr_temp", "level_replay_temperature"),
    "runner.score": ("ued_score", "plr_score", "score_function", "level_replay_strategy"),
    "runner.n_edits": ("num_edits", "plr_num_mutations", "n_mutations"),
    "model.memory_width": ("hidden", "hidden_size", "hidden_dim", "recurrent_hidden_dim", "lstm_size"),
    "ppo.lr": ("learning_rate", "student_lr"),
    "ppo.lr_final": ("lr_anneal", "anneal_lr"),
    "ppo.gamma": ("discount",),
    "ppo.gae_lambda": ("gae_lam",),
    "ppo.clip_eps": ("clip_param", "clip_range", "ppo_clip_eps"),
    "ppo.n_epochs": ("epoch_ppo", "ppo_epoch", "update_epochs", "student_ppo_n_epochs"),
    "ppo.n_minibatches": ("num_minibatches", "num_mini_batch", "student_ppo_n_minibatches"),
    "ppo.entropy_coef": ("ent_coef", "ent_coeff", "entropy_coeff"),
    "ppo.value_coef": ("vf_coef", "value_loss_coef", "critic_coeff"),
    "eval.every": ("eval_freq", "test_interval"),
    "eval.tasks": ("test_env_names", "eval_levels"),
    "eval.n_episodes": ("n_eval_episodes", "eval_num_attempts", "test_n_episodes"),
}
ELSEWHERE = {other: setting for setting, others in NAMES_ELSEWHERE.items() for other in others}
FEW = 3  # names of another library's, which one has by no accident; and as many are shown


def settings_elsewhere(tree: Mapping[Any, Any]) -> list[str] | None:
    """What a few settings of another library's file are called here; None where it is none.

    minimax's and dcd's files (JSON) hold them under `args`.
    """
    inner = tree.get("args")
    names = inner if isinstance(inner, Mapping) else tree
    found = [f"{name} is {ELSEWHERE[name]}" for name in names if isinstance(name, str) and name in ELSEWHERE]
    return found[:FEW] if names is inner or len(found) >= FEW else None


# Our own names too: gamma is found in whatever group it was looked for.
SETTING_OF = {
    other: setting for setting, others in NAMES_ELSEWHERE.items() for other in (*others, setting.rpartition(".")[2])
}

"""Packaging: the distribution is called minimax-ued, the package minimax_lib. Each dependency says what it is for."""

from pathlib import Path

from setuptools import find_packages, setup

JAX = ">=0.10"
INSTALL = [
    f"jax{JAX}",  # everything that is compiled
    "numpy>=2.0",  # host-side arrays
    "flax>=0.12",  # linen modules and struct dataclasses
    "optax>=0.2.8",  # optimisers and schedules
    "chex>=0.1.91",  # trace counting and array checks
    "distrax>=0.1.9",  # action distributions
    "tfp-nightly>=0.26.0.dev20260101",  # for distrax: the stable tensorflow-probability fails on a current jax
    "orbax-checkpoint>=0.12,<1.0",  # asynchronous, atomic checkpoints
    "PyYAML>=6.0",  # experiment files
    "rich>=13.0",  # progress line and tables
    "scipy>=1.15",  # interquartile mean and bootstrap intervals
    "pillow>=10.0",  # pictures of levels
    "filelock>=3.13",  # one process at a time owns a run folder
    "matplotlib>=3.9",  # figures: minimax-plot, minimax-report
    "jinja2>=3.1",  # the templates of the page that minimax-report writes
]
GYMNAX = "gymnax>=1.0,<2.0"  # 1.0 tells an end from a time limit
VIDEO = "imageio-ffmpeg>=0.6"  # brings its own ffmpeg
OPTUNA = "optuna>=5.0,<6.0"
WANDB = "wandb>=0.31,<1.0"
GYMNASIUM = "gymnasium>=1.1"  # 1.1 names the kinds of automatic resets
PETTINGZOO = "pettingzoo>=1.25"
RUN_TESTS = ["pytest>=8.4", "pytest-xdist>=3.7"]
NOTEBOOKS = ["nbclient>=0.10", "nbformat>=5.10", "ipykernel>=6.29"]  # to run those of docs/notebooks
LINT = ["ruff>=0.14", "mypy>=1.18", "types-PyYAML"]
EXTRAS = {
    # Accelerators: what jax itself installs for them.
    "cuda12": [f"jax[cuda12]{JAX}"],
    "cuda13": [f"jax[cuda13]{JAX}"],
    "tpu": [f"jax[tpu]{JAX}"],
    "test": [
        *RUN_TESTS,
        "hypothesis>=6.100",
        "minigrid>=3.0",
        "open_spiel>=2.0",  # its laser_tag, with which LaserTag is compared step by step
        "tensorboardX>=2.6",
        GYMNAX,
        GYMNASIUM,
        OPTUNA,
        PETTINGZOO,
        VIDEO,
        WANDB,
        *NOTEBOOKS,
        *LINT,
    ],
    "plots": [],  # part of the installation now; commands that name it still work
    "envs": ["minigrid>=3.0", "gymnasium>=1.0"],  # the real MiniGrid, to compare with
    "gymnax": [GYMNAX],  # its environments (--env Gymnax), and ours with its calls (minimax_lib.portable.export)
    # Our environments as Gymnasium's (minimax_lib.portable.export), and task curricula in a Gymnasium training.
    "gymnasium": [GYMNASIUM],
    # Task curricula in the trainings of other libraries (docs/portable.md).
    "box2d": ["box2d>=2.3.10", GYMNASIUM],  # tests and benchmarks that compare our walker with Gymnasium's
    "nle": ["nle>=1.3"],  # NetHack; it needs an older Gymnasium than others, so it stands alone
    "pettingzoo": [PETTINGZOO],
    # What Procgen's wheel needs at run time. It asks for an old NumPy, and works with today's: see docs/portable.md.
    "procgen": ["cffi>=1.13,<2.0", "cloudpickle>=1.2", "gym-notices", "imageio>=2.6,<3.0", GYMNASIUM],
    "ray": ["ray[rllib]>=2.40", GYMNASIUM],
    "sb3": ["stable-baselines3>=2.5", GYMNASIUM],
    "trl": ["trl>=1.0"],  # GRPO of language models (docs/examples/prompt_trl.py)
    # Craftax-Classic (--env Craftax). Not beside minigrid: its pygame and minigrid's pygame-ce are the same import.
    "craftax": ["craftax>=1.6.1,<2.0"],
    "test-craftax": ["craftax>=1.6.1,<2.0", *RUN_TESTS],  # tests/test_craftax.py, for the same reason apart
    "sweep": [OPTUNA],  # minimax-sweep: it chooses the trials, ends bad ones early and keeps the journal of them
    "tensorboard": ["tensorboardX>=2.6"],  # a second place for the metrics of a run (--tensorboard)
    "wandb": [WANDB],  # a third (--wandb)
    "video": [VIDEO],  # films of episodes as MP4 (minimax-draw --format mp4)
    # The documentation site (.ci/docs). Its theme does not work with mkdocs 2. ruff formats the signatures.
    "docs": ["mkdocs>=1.6,<2.0", "mkdocs-material>=9.7,<10.0", "mkdocstrings[python]>=1.0,<2.0", "ruff>=0.14"],
}

setup(
    name="minimax-ued",  # minimax-lib is another project's
    version="0.1.0",
    description="Fully jitted autocurricula (unsupervised environment design) in JAX",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=[
        "reinforcement learning",
        "unsupervised environment design",
        "autocurricula",
        "curriculum learning",
        "JAX",
    ],
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["minimax_lib", "minimax_lib.*"]),
    package_data={
        "minimax_lib": [
            "py.typed",
            "configs/*/*.yaml",
            "configs/*/*/*.yaml",
            "trained/*/*/*.yaml",
            "trained/*/*/*.json*",
            "trained/*/*/archive/*.npz",
            "envs/lasertag/*.json",
            "envs/maze/*.json",
            "envs/nmmo/*.json",
            "pictures/*.css",
            "pictures/*.html",
            "pictures/*.js",
        ]
    },
    install_requires=INSTALL,
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "minimax-train=minimax_lib.commands.launch:train",
            "minimax-evaluate=minimax_lib.commands.launch:evaluate",
            "minimax-plot=minimax_lib.commands.launch:plot",
            "minimax-draw=minimax_lib.commands.launch:draw",
            "minimax-play=minimax_lib.commands.launch:play",
            "minimax-report=minimax_lib.commands.launch:report",
            "minimax-sweep=minimax_lib.commands.launch:sweep",
        ]
    },
)

"""Packaging of minimax_lib. Each dependency says what it is for."""

from pathlib import Path

from setuptools import find_packages, setup

INSTALL = [
    "jax>=0.10",  # everything that is compiled
    "numpy>=2.0",  # host-side arrays
    "flax>=0.12",  # linen modules and struct dataclasses
    "optax>=0.2.8",  # optimisers and schedules
    "chex>=0.1.91",  # trace counting and array checks
    "distrax>=0.1.9",  # action distributions
    "tfp-nightly>=0.26.0.dev20260101",  # for distrax: the stable tensorflow-probability fails on a current jax
    "orbax-checkpoint>=0.12,<1.0",  # asynchronous, atomic checkpoints
    "tyro>=1.0,<2.0",  # the command line from the configuration's dataclasses
    "PyYAML>=6.0",  # experiment files
    "rich>=13.0",  # progress line and tables
    "scipy>=1.15",  # interquartile mean and bootstrap intervals
    "pillow>=10.0",  # pictures of levels
    "filelock>=3.13",  # one process at a time owns a run folder
]
GYMNAX = "gymnax>=1.0,<2.0"  # 1.0 tells an end from a time limit
RUN_TESTS = ["pytest>=8.4", "pytest-xdist>=3.6"]
LINT = ["ruff>=0.14", "mypy>=1.18", "types-PyYAML"]
EXTRAS = {
    "test": [*RUN_TESTS, "hypothesis>=6.100", "minigrid>=3.0", "tensorboardX>=2.6", GYMNAX, *LINT],
    "plots": ["matplotlib>=3.9"],  # benchmark and learning curves
    "envs": ["minigrid>=3.0", "gymnasium>=1.0"],  # the real MiniGrid, to compare with
    "gymnax": [GYMNAX],  # its environments (--env Gymnax)
    # Craftax-Classic (--env Craftax). Not beside minigrid: its pygame and minigrid's pygame-ce are the same import.
    "craftax": ["craftax>=1.6.1,<2.0"],
    "test-craftax": ["craftax>=1.6.1,<2.0", *RUN_TESTS],  # tests/test_craftax.py, for the same reason apart
    "tensorboard": ["tensorboardX>=2.6"],  # a second place for the metrics of a run (--tensorboard)
}

setup(
    name="minimax-lib",
    version="0.1.0",
    description="Fully jitted autocurricula (unsupervised environment design) in JAX",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["minimax_lib", "minimax_lib.*"]),
    package_data={"minimax_lib": ["py.typed", "configs/*/*.yaml", "envs/maze/*.json"]},
    install_requires=INSTALL,
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "minimax-train=minimax_lib.train:main",
            "minimax-evaluate=minimax_lib.evaluate:main",
        ]
    },
)

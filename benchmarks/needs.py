"""What a machine must have installed to run this repository's checkout, and how to bring what it lacks.

    python benchmarks/needs.py

Some machines reach no package registry. Then wheels are fetched elsewhere and carried there. Only modules of Python's
own library are imported here, so that the answer comes at once.
"""

import importlib.metadata
import importlib.util
import platform
import re
import sys
from collections.abc import Callable, Iterator

# Distribution -> the version that setup.py asks for, its module, and what it needs in turn.
PACKAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "jax": (">=0.10", "jax", ("jaxlib", "ml-dtypes", "opt-einsum")),
    "numpy": (">=2.0", "numpy", ()),
    "flax": (">=0.12", "flax", ("msgpack", "tensorstore", "treescope", "typing-extensions")),
    "optax": (">=0.2.8", "optax", ("absl-py",)),
    "chex": (">=0.1.91", "chex", ("absl-py", "toolz", "typing-extensions")),
    "distrax": (">=0.1.9", "distrax", ("absl-py",)),
    "tfp-nightly": (
        ">=0.26.0.dev20260101",
        "tensorflow_probability",
        ("absl-py", "six", "decorator", "cloudpickle", "gast", "dm-tree"),
    ),
    "orbax-checkpoint": (
        ">=0.12,<1.0",
        "orbax.checkpoint",
        (
            *("absl-py", "etils", "typing-extensions", "msgpack", "prometheus-client", "tensorstore", "aiofiles"),
            *("protobuf", "humanize", "simplejson", "psutil", "uvloop"),
        ),
    ),
    "PyYAML": (">=6.0", "yaml", ()),
    "rich": (">=13.0", "rich", ("markdown-it-py", "pygments")),
    "scipy": (">=1.15", "scipy", ()),
    "pillow": (">=10.0", "PIL", ()),
    "filelock": (">=3.13", "filelock", ()),
    "matplotlib": (
        ">=3.9",
        "matplotlib",
        ("contourpy", "cycler", "fonttools", "kiwisolver", "packaging", "pyparsing", "python-dateutil"),
    ),
    "jinja2": (">=3.1", "jinja2", ("markupsafe",)),
}
# What only other packages need -> its module, and what it needs in turn.
OTHERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "jaxlib": ("jaxlib", ()),
    "ml-dtypes": ("ml_dtypes", ()),
    "opt-einsum": ("opt_einsum", ()),
    "msgpack": ("msgpack", ()),
    "tensorstore": ("tensorstore", ()),
    "treescope": ("treescope", ()),
    "typing-extensions": ("typing_extensions", ()),
    "absl-py": ("absl", ()),
    "toolz": ("toolz", ()),
    "six": ("six", ()),
    "decorator": ("decorator", ()),
    "cloudpickle": ("cloudpickle", ()),
    "gast": ("gast", ()),
    "dm-tree": ("tree", ("absl-py", "attrs", "wrapt")),
    "attrs": ("attrs", ()),
    "wrapt": ("wrapt", ()),
    "etils": ("etils", ()),
    "prometheus-client": ("prometheus_client", ()),
    "aiofiles": ("aiofiles", ()),
    "protobuf": ("google.protobuf", ()),
    "humanize": ("humanize", ()),
    "simplejson": ("simplejson", ()),
    "psutil": ("psutil", ()),
    "uvloop": ("uvloop", ()),
    "markdown-it-py": ("markdown_it", ("mdurl",)),
    "mdurl": ("mdurl", ()),
    "pygments": ("pygments", ()),
    "contourpy": ("contourpy", ()),
    "cycler": ("cycler", ()),
    "fonttools": ("fontTools", ()),
    "kiwisolver": ("kiwisolver", ()),
    "packaging": ("packaging", ()),
    "pyparsing": ("pyparsing", ()),
    "python-dateutil": ("dateutil", ("six",)),
    "markupsafe": ("markupsafe", ()),
}
FOLDER = "wheels"
PLATFORMS = tuple(f"manylinux{name}" for name in ("_2_28", "_2_27", "_2_17", "2014", "1"))


def is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def installed_version(distribution: str) -> str | None:
    """None if it is not installed, or provided by another distribution."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 26, 0) of 0.26.0.dev20260101."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def is_too_old(distribution: str, asked: str) -> bool:
    """Whether an older version than `asked` is installed. Only the lower bound counts."""
    version = installed_version(distribution)
    least = re.search(r">=([^,]+)", asked)
    return version is not None and least is not None and numbers(version) < numbers(least.group(1))


def missing(
    there: Callable[[str], bool] = is_importable, too_old: Callable[[str, str], bool] = is_too_old
) -> list[str]:
    """What pip must bring, as requirements. A package that is there needs nothing more."""

    def lacking(name: str) -> Iterator[str]:
        asked, module, needed = PACKAGES[name] if name in PACKAGES else ("", *OTHERS[name])
        if there(module) and not too_old(name, asked):
            return
        yield f"{name}{asked}"
        for other in needed:
            yield from lacking(other)

    return list(dict.fromkeys(one for name in PACKAGES for one in lacking(name)))


def how_to_bring(requirements: list[str]) -> str:
    """One line: the commands that fetch the wheels of `requirements` elsewhere and install them here."""
    names = " ".join(f"'{one}'" if set(one) & set("<>=") else one for one in requirements)
    kinds = " ".join(f"--platform {name}_{platform.machine()}" for name in PLATFORMS)
    python = f"--python-version {sys.version_info.major}.{sys.version_info.minor} --implementation cp"
    fetch = f"python3 -m pip download --no-deps --only-binary=:all: {python} {kinds} -d {FOLDER} {names}"
    install = f"python3 -m pip install --no-index --no-deps {FOLDER}/*.whl"
    return f"where there is a network: {fetch}; then here: {install}"


def main() -> int:
    lacking = missing()
    if lacking:
        print(f"error: {', '.join(lacking)} not installed; {how_to_bring(lacking)}", file=sys.stderr)
        return 2
    print("everything that is needed is installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

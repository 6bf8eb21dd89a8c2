"""The configuration of a run, from the command line, YAML files or plain dicts."""

from minimax_lib.config.flags import parse
from minimax_lib.config.train import Config, from_dict, load_yaml, save_yaml, to_dict

__all__ = ["Config", "from_dict", "load_yaml", "parse", "save_yaml", "to_dict"]

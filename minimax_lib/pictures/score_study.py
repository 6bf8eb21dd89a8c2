"""The figure that the paper of SFL argues with: what a level scores, and how often it is solved."""

from typing import Any

import numpy as np

from minimax_lib.evaluation.score_study import ScoreStudy
from minimax_lib.pictures import style
from minimax_lib.pictures.style import Picture

COLUMNS = 3


def score_study_picture(study: ScoreStudy, name: str = "scores") -> Picture:
    """A panel for each score, in the order of the table: each level is a point."""
    order = [row["score"] for row in study.correlations()]

    def draw() -> Any:
        n_rows = -(-len(order) // COLUMNS)
        drawn, panels = style.figure(0.9 * n_rows, n_rows, COLUMNS, sharey=True)
        for place, axes in enumerate(panels.flat):
            if place >= len(order):
                axes.set_visible(False)
                continue
            values = study.scores[order[place]]
            known = np.isfinite(values)
            axes.plot(values[known], study.rates[known], ".", markersize=1.2, color=style.colour(0), rasterized=True)
            axes.set_title(order[place], fontsize=style.SMALL - 1, pad=2)
            axes.tick_params(labelsize=style.SMALL - 2)
            axes.locator_params(axis="x", nbins=3)
        drawn.supxlabel("score of the level", fontsize=style.SMALL)
        drawn.supylabel("solved rate of whole episodes", fontsize=style.SMALL)
        return drawn

    return Picture(name, study.levels(), draw)

"""What pictures of all environments have in common. On the host, with pillow."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PAPER, INK = (255, 255, 255), (40, 40, 40)
SMALLEST = 11  # letters that can be read, in pixels


def arranged(tiles: Sequence[np.ndarray], texts: Sequence[str], columns: int, gap: int) -> np.ndarray:
    """u8[H, W, 3]: tiles (u8[h, w, 3] each) on paper, in columns of equal width, each centred above its text.

    `gap` is the distance between them in pixels. The text has a size to go with it, or a smaller one that fits. Columns
    are wider than the tiles where even small letters need it.
    """
    widest = max(tile.shape[1] for tile in tiles)
    size = max(SMALLEST, 3 * gap // 4)
    while size > SMALLEST and _width(texts, size) > widest:
        size -= 1
    font, width = ImageFont.load_default(size=size), max(widest, _width(texts, size))
    rows = [range(i, min(i + columns, len(tiles))) for i in range(0, len(tiles), columns)]
    heights = [max(tiles[i].shape[0] for i in row) for row in rows]
    below = 2 * gap if any(texts) else gap
    paper = Image.new("RGB", (columns * (width + gap) + gap, sum(heights) + len(rows) * below + gap), PAPER)
    draw, bottom = ImageDraw.Draw(paper), gap
    for row, height in zip(rows, heights, strict=True):
        bottom += height
        for column, i in enumerate(row):
            x = gap + column * (width + gap) + width // 2
            paper.paste(Image.fromarray(tiles[i]), (x - tiles[i].shape[1] // 2, bottom - tiles[i].shape[0]))
            draw.text((x, bottom + gap // 4), texts[i], fill=INK, font=font, anchor="ma")
        bottom += below
    return np.asarray(paper)


def _width(texts: Sequence[str], size: int) -> int:
    """Of the longest text, in pixels."""
    font = ImageFont.load_default(size=size)
    return max((int(font.getlength(text)) for text in texts), default=0)


def titled(picture: np.ndarray, title: str, size: int = 14) -> np.ndarray:
    """The picture below a line of text, in letters `size` pixels high. Paper is added where the text is wider."""
    font, above = ImageFont.load_default(size=size), 2 * size
    width = max(picture.shape[1], int(font.getlength(title)) + 2 * size)
    image = Image.new("RGB", (width, picture.shape[0] + above), PAPER)
    image.paste(Image.fromarray(picture), ((width - picture.shape[1]) // 2, above))
    ImageDraw.Draw(image).text((width // 2, size // 2), title, INK, font, anchor="ma")
    return np.asarray(image)


def stacked(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """The pictures one below the other, at the left edge of a paper."""
    width = max(picture.shape[1] for picture in pictures)
    return np.concatenate([padded(picture, picture.shape[0], width) for picture in pictures])


def same_size(pictures: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The pictures on papers of one size, as the frames of a film must be."""
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    return [padded(picture, height, width) for picture in pictures]


def padded(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """The picture in the upper left corner of a paper of that size."""
    paper = np.full((height, width, 3), PAPER, np.uint8)
    paper[: picture.shape[0], : picture.shape[1]] = picture
    return paper


def shrunk(picture: np.ndarray, most: int) -> np.ndarray:
    """The picture, made smaller if it is wider than `most` pixels."""
    height, width = picture.shape[:2]
    if width <= most:
        return picture
    size = (most, max(1, round(height * most / width)))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))

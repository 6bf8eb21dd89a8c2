"""What families of random levels share."""


class SquareFamily:
    """A frame of `size` rows and columns."""

    size: int

    @property
    def height(self) -> int:
        """Rows of cells of the frame."""
        return self.size

    @property
    def width(self) -> int:
        """Columns of cells of the frame."""
        return self.size

"""Files that somebody else may have made. Their kind and their size are known before anything in them is read.

Every reader of the package opens files here:

* Only regular files are opened, never a pipe or a device, which may not end or not begin. A link counts as what it
  leads to: people keep runs on other disks.
* A file has a bound on its bytes, of which none is read where there are more.
* Of an archive of arrays, the list of members and the headers are read first. They say how many arrays it has, of
  which types and shapes, and how much it unpacks to.
* Every failure is one line with the name of the file.
"""

import contextlib
import io
import json
import math
import os
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minimax_lib.messages import one_line, printable

# The bounds, in bytes. They are generous: a real file that reaches one of them has not been seen.
MOST_TEXT = 10_000_000  # of what people write: JSON, mazes as text
MOST_TABLE = 1_000_000_000  # of a table or a log; ten seeds with 100,000 rows each
MOST_UNPACKED, MOST_RATIO = 100_000_000, 10  # an archive unpacks to this, or to this many times its own size
MOST_MEMBERS = 10_000  # arrays of an archive
MEMBER = 200  # bytes of a member in the list of members, its name included
MOST_HEADER = 20_000  # of an array; NumPy itself refuses those over 10,000

MISSING = "does not exist"
ARRAY = ".npy"  # the end of a member's name
KINDS = "biufcSUV"  # of numbers, text and raw bytes: no objects, which would have to be unpickled
END, LOCATOR, END_64 = 22, 20, 56  # bytes of the last records of a zip file, by the format's description

Forms = Mapping[str, tuple[np.dtype, tuple[int, ...]]]  # (type, shape) of arrays by name


class UnreadableFile(OSError, ValueError):
    """A file cannot be read. One line, with its name.

    As `io.UnsupportedOperation` it is both: bad input where a request is checked, a failure where work is done.
    """

    def __init__(self, path: str | Path, why: str):
        super().__init__(f"{printable(str(path))} {why}")
        self.why = why


@contextlib.contextmanager
def opened(path: str | Path, most: int | None) -> Iterator[BinaryIO]:
    """A regular file of at most `most` bytes (None: any number), to be read. UnreadableFile for all others."""
    try:
        # Before it is opened: opening alone may wait, or do something to a device.
        check_regular(path, os.stat(path), most)
        with open(path, "rb", opener=_unblocked) as file:
            check_regular(path, os.fstat(file.fileno()), most)  # it may be another one by now
            yield file
    except UnreadableFile:
        raise
    except FileNotFoundError:
        raise UnreadableFile(path, MISSING) from None
    except OSError as error:
        raise UnreadableFile(path, f"cannot be read: {error.strerror or one_line(error)}") from None


def check_regular(path: str | Path, status: os.stat_result, most: int | None) -> None:
    """UnreadableFile unless `status` is that of a regular file of at most `most` bytes."""
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableFile(path, "cannot be read: Is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(path, "is a pipe or a device: it must be a regular file")
    if most is not None and status.st_size > most:
        raise UnreadableFile(path, f"is too large: it must have {most:,} bytes at most, and has {status.st_size:,}")


def _unblocked(path: str, flags: int) -> int:
    # A pipe that has taken the file's place would wait for a writer. Windows has neither.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_bytes(path: str | Path, most: int) -> bytes:
    """The content of a file, as long as it was when it was opened. UnreadableFile as `opened`."""
    with opened(path, most) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """The text of a file, in UTF-8. UnreadableFile where it is none, or as `opened`."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableFile(path, "cannot be read: it is not UTF-8 text") from None


def read_json(path: str | Path, most: int = MOST_TEXT) -> Any:
    """What a JSON file says. UnreadableFile where it says nothing, or as `opened`."""
    text = read_text(path, most)
    try:
        return json.loads(text)
    except RecursionError:
        raise UnreadableFile(path, "is not JSON: it is nested too deep") from None
    except ValueError as error:
        raise UnreadableFile(path, f"is not JSON: {one_line(error)}") from None


def holds(path: Path, content: bytes) -> bool:
    """Whether `path` is a file with exactly this content. A file that cannot be read has another one."""
    try:
        return read_bytes(path, len(content)) == content
    except UnreadableFile:
        return False


def check_folder(folder: Path, most: int) -> None:
    """UnreadableFile unless all that is in `folder` are folders and regular files, of at most `most` bytes together.

    For a folder that another library reads.
    """
    n_bytes = 0
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                if path.is_symlink():  # which `os.walk` does not follow, and the other library does
                    raise UnreadableFile(path, "is a link to a folder: it must be a folder")
                continue
            check_regular(path, status, most)
            n_bytes += status.st_size
            if n_bytes > most:
                raise UnreadableFile(
                    folder, f"is too large: it must have {most:,} bytes at most, and has {n_bytes:,} or more"
                )


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """A block that writes to `path`: an error of the disk names the file, which Python leaves out."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


# -------------------------------------------------------------------------------------------------- archives of arrays


def read_arrays(
    path: str | Path, wanted: Callable[[str], bool] = lambda _: True, fault: Callable[[Forms], str] = lambda _: ""
) -> dict[str, np.ndarray]:
    """The arrays in an .npz file by name, of those names that are `wanted`. Nothing is unpickled.

    `fault` is asked before any array is read. What it says is wrong with their types and shapes is why the file is
    refused; it says nothing where all is well. UnreadableFile where the file is refused or damaged.
    """
    with opened(path, None) as file:
        try:
            n_bytes = os.fstat(file.fileno()).st_size
            _check_end(file, n_bytes)
            with zipfile.ZipFile(file) as archive:
                forms = forms_in(archive, n_bytes)
                wrong = fault(forms)
                if not wrong:
                    return {name: _array(archive, name) for name in forms if wanted(name)}
        # Whatever NumPy, zip files and decompression say of damaged bytes.
        except Exception as error:
            raise UnreadableFile(path, f"is not an .npz file of plain arrays ({one_line(error)})") from None
    raise UnreadableFile(path, wrong)


def forms_in(archive: zipfile.ZipFile, n_bytes: int) -> Forms:
    """(type, shape) of every array in an archive of `n_bytes`, of which the headers alone are read.

    ValueError, which does not name the file, where the arrays are too many or too large, or where they are none.
    """
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise ValueError(f"it has {len(members):,} members, and may have {MOST_MEMBERS:,}")
    forms: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
    unpacked, most = sum(member.file_size for member in members), max(MOST_UNPACKED, MOST_RATIO * n_bytes)
    if unpacked > most:
        raise ValueError(f"it unpacks to {unpacked:,} bytes, and may unpack to {most:,}")
    for member in members:
        name = member.filename.removesuffix(ARRAY)
        if name in forms or not member.filename.endswith(ARRAY):
            raise ValueError(f"{name!r} is in it twice" if name in forms else f"{name!r} is no array")
        forms[name] = _form(archive, member, name)
    return forms


def _check_end(file: BinaryIO, n_bytes: int) -> None:
    """ValueError unless the end of a zip file says that its list of members is short.

    The list itself would be read as a whole, however long it is. NumPy writes no comment behind it; without one, the
    records at the end are where they must be, and no other reader finds others.
    """
    file.seek(max(0, n_bytes - END - LOCATOR - END_64))
    tail = file.read(END + LOCATOR + END_64)
    end, locator = tail[-END:], tail[-END - LOCATOR : -END]
    if end[:4] != b"PK\x05\x06" or end[-2:] != b"\0\0":
        raise ValueError("it does not end as a zip file")
    (length,) = struct.unpack("<I", end[12:16])
    if locator[:4] == b"PK\x06\x07":  # as in files over 2 GB
        if struct.unpack("<Q", locator[8:16])[0] != n_bytes - END - LOCATOR - END_64:
            raise ValueError("it does not end as a zip file")
        length = max(length, *struct.unpack("<Q", tail[40:48])) if tail[:4] == b"PK\x06\x06" else length
    if length > MOST_MEMBERS * MEMBER:
        raise ValueError(f"its list of members has {length:,} bytes, and may have {MOST_MEMBERS * MEMBER:,}")


def _form(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> tuple[np.dtype, tuple[int, ...]]:
    """(type, shape) of an array. ValueError where it is none, or is not as long as its header says."""
    if member.flag_bits & 1:
        raise ValueError(f"{name!r} is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name!r} is compressed in a way that NumPy does not write")
    with archive.open(member) as stream:
        head = io.BytesIO(stream.read(MOST_HEADER))
    version = np.lib.format.read_magic(head)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name!r} has a header of version {version[0]}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(head)
    if dtype.hasobject:
        raise ValueError(f"{name!r} cannot be read without allow_pickle, which is off")
    if dtype.kind not in KINDS or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"{name!r} is of the type {dtype}")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize + head.tell() != member.file_size:
        claimed = ", ".join(f"{n:,}" for n in shape)
        raise ValueError(f"{name!r} has {member.file_size:,} bytes, and its header says {dtype}[{claimed}]")
    return dtype, shape


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name + ARRAY) as stream:
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # at the end, the checksum is compared
    return array

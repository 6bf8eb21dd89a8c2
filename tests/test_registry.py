"""Registries: what is in, what is refused, and how the refusal reads."""

import pytest

from minimax_lib.registry import Registry, unknown_name


def test_lookup_register_and_name_of():
    table = Registry("colour", {"red": 1})
    table.register("green", 2)
    assert table["green"] == 2
    assert table.names() == ("red", "green")
    assert table.name_of(2) == "green"
    assert "red" in table
    assert "blue" not in table


def test_a_taken_name_is_refused_but_repeating_a_registration_is_not():
    thing = object()
    table = Registry("colour", {"red": thing})
    table.register("red", thing)
    with pytest.raises(ValueError, match="colour 'red' is registered already"):
        table.register("red", object())


def test_unknown_names_are_one_line_with_the_nearest():
    with pytest.raises(ValueError, match=r"^unknown colour 'gren': choose from red, green \(did you mean 'green'\?\)$"):
        Registry("colour", {"red": 1, "green": 2})["gren"]
    assert str(unknown_name("env", "amaze", ["AMaze"])) == (
        "unknown env 'amaze': choose from AMaze (did you mean 'AMaze'?)"
    )
    assert "did you mean" not in str(unknown_name("env", "zzz", ["AMaze"]))

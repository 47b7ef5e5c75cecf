"""Documents are what PyYAML's own loader and dumper make of them, whichever loader is at hand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.documents import read_document, write_document

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(plain, max_size=3) | st.dictionaries(st.text(), plain, max_size=3))
def test_what_is_written_is_read_again_by_either_loader(data: dict[str, Any] | list[Any]) -> None:
    text = write_document(data)
    assert read_document(text) == data
    assert yaml.safe_load(text) == data


def test_names_keep_their_order() -> None:
    assert write_document({"b": 1, "a": {"d": [], "c": "yes"}}) == "b: 1\na:\n  d: []\n  c: 'yes'\n"


@pytest.mark.parametrize("text", ["{", "a: b: c", "- a\n b: c", "!!python/object/apply:os.getcwd []", "a: \ud800"])
def test_what_is_no_document_is_refused_with_the_words_of_the_own_loader(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as expected:
        yaml.safe_load(text)
    with pytest.raises(yaml.YAMLError) as refused:
        read_document(text)
    assert str(refused.value) == str(expected.value)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises((yaml.YAMLError, UnicodeDecodeError)):
        read_document(b"a: \xff")

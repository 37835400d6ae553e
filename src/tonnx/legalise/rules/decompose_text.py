"""Strings: nothing computes with them but the operators made for it."""

from __future__ import annotations

from tonnx.legalise.table import impossible

impossible("StringConcat", 20, "nothing older joins strings")
impossible("StringSplit", 20, "nothing older splits strings")
impossible("RegexFullMatch", 20, "nothing older matches strings against a pattern")
impossible("StringNormalizer", 10, "nothing older changes strings")
impossible("TfIdfVectorizer", 9, "nothing older counts n-grams")

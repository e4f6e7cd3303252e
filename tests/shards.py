"""The long form of a test in shards, so that an interrupted run can go on.

`ANTIPHON_SOAK_SHARD=3/100` is the third of 100.
Each shard does its share of the work with a seed of its own. Without the variable there is one shard, which does all.
"""

import os
import re
from typing import NamedTuple

VARIABLE = "ANTIPHON_SOAK_SHARD"


class Shard(NamedTuple):
    """One of several equal shares of a long test."""

    number: int
    """From 1."""
    of: int

    def share(self, whole: int) -> int:
        """How much of the whole it does; the shares of all shards add up to the whole."""
        return whole * self.number // self.of - whole * (self.number - 1) // self.of

    def seed(self, first: int) -> int:
        """A seed that no other shard has; the first shard has the given one."""
        return first + self.number - 1


def read_shard(text: str) -> Shard:
    """`3/100` as a shard. Raises `ValueError` for anything else."""
    found = re.fullmatch(r"([1-9][0-9]*)/([1-9][0-9]*)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(
            f"{VARIABLE} is {text!r}: write the number of the shard and how many there are, such as 3/100."
        )
    return Shard(int(found[1]), int(found[2]))


def shard() -> Shard:
    """The shard that this run does."""
    return read_shard(os.environ.get(VARIABLE) or "1/1")

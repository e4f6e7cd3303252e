"""A long test in shards does as much as in one piece."""

import pytest

from tests.shards import VARIABLE, Shard, read_shard


def test_the_shards_share_the_work_and_no_seed() -> None:
    shards = [Shard(number, 7) for number in range(1, 8)]
    assert sum(each.share(1_000) for each in shards) == 1_000
    assert max(each.share(1_000) for each in shards) - min(each.share(1_000) for each in shards) <= 1
    assert len({each.seed(17) for each in shards}) == 7
    assert (read_shard("1/1").share(1_000), read_shard("1/1").seed(17)) == (1_000, 17)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", " 1/2", "-1/2"])
def test_a_number_that_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"{VARIABLE}.*3/100"):
        read_shard(text)

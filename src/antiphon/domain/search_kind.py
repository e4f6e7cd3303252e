"""The search engines that `search_web` can ask."""

from enum import StrEnum


class SearchKind(StrEnum):
    SEARXNG = "searxng"
    BRAVE = "brave"

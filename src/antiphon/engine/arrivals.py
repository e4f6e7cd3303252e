"""What lists show of a session because of a message that came in, whoever sent it. Contract: sessions 1."""

from antiphon.domain.session import DescriptionSource
from antiphon.domain.text import DESCRIPTION_LENGTH, PREVIEW_LENGTH, one_line
from antiphon.store.database import SqlValue


def shown_columns(text: str, *, describes: bool) -> dict[str, SqlValue]:
    """The preview; and the fallback description, if the message `describes` a session that has none."""
    columns: dict[str, SqlValue] = {"preview": one_line(text, PREVIEW_LENGTH)}
    if describes and text:
        columns["description"] = one_line(text, DESCRIPTION_LENGTH)
        columns["description_source"] = DescriptionSource.FALLBACK.value
    return columns
